"""Single operations of a bench.json as rates of the model. Knows names of parts; times nothing."""

from typing import Final

from escala.formats.bench_record import Bench
from escala.model.operations import Operations

FORMAT: Final = "fp32"


def operations_of(bench: Bench) -> Operations | None:
    """What a bench timed of a processor beside products; None where a part is missing, or on a GPU."""
    update = [each.best_s / each.shape[0] / each.shape[1] for each in bench.timed if each.part == "optimizer"]
    launch = [each.best_s for each in bench.timed if each.part == "launch"]
    distributed = [each.best_s / each.shape[0] for each in bench.timed if each.part == "distributed launch"]
    names = ("attention", "attention backward", "convolution", "convolution backward")
    rates = [large_flop_per_s(bench, part, FORMAT) for part in names]
    passes = [each.bytes_per_s for each in bench.timed if each.part == "passes" and each.bytes_per_s]
    known = [each for each in rates if each is not None]
    if bench.device.kind != "cpu" or len(known) < len(rates) or not (update and launch and passes):
        return None
    attention, attention_backward, convolution, convolution_backward = known
    return Operations(
        launch_s=min(launch),
        update_s=min(update),
        pass_bytes_per_s=max(passes),
        attention_flop_per_s=attention,
        attention_backward_flop_per_s=attention_backward,
        convolution_flop_per_s=convolution,
        convolution_backward_flop_per_s=convolution_backward,
        distributed_launch_s=min(distributed, default=None),
    )


def large_flop_per_s(bench: Bench, part: str, dtype: str) -> float | None:
    """Rate of the largest product of a number format, its forward and backward layouts together.

    Total FLOP / total seconds of the layouts: a training step runs each of them once.
    """
    every = [each for each in bench.timed if (each.part, each.dtype) == (part, dtype) and each.flop]
    most = max((each.flop or 0.0 for each in every), default=0.0)
    largest = [each for each in every if each.flop == most]
    return most * len(largest) / sum(each.best_s for each in largest) if largest else None
