"""Single operations of a bench.json as rates of the model. Knows names of parts; times nothing."""

import math
from typing import Final

from escala.formats.bench_record import Bench
from escala.model.lines import line
from escala.model.operations import Operations

FORMAT: Final = "fp32"


def operations_of(bench: Bench) -> Operations | None:
    """What a bench timed of a processor beside products; None where a part is missing, or on a GPU."""
    update = [each.usual_s / math.prod(each.shape) for each in bench.timed if each.part == "optimizer"]
    pooled = [each.usual_s / math.prod(each.shape) for each in bench.timed if each.part == "pooling"]
    launch = [each.usual_s for each in bench.timed if each.part == "launch"]
    distributed = [each.usual_s / each.shape[0] for each in bench.timed if each.part == "distributed launch"]
    attention, attention_backward = (
        large_flop_per_s(bench, part, FORMAT) for part in ("attention", "attention backward")
    )
    there, back = (_flop_and_byte_s(bench, part) for part in ("convolution", "convolution backward"))
    passes = [
        rate for each in bench.timed if each.part == "passes" and (rate := each.usual_bytes_per_s) is not None
    ]
    if bench.device.kind != "cpu" or not (update and launch and passes and pooled):
        return None
    if attention is None or attention_backward is None or there is None or back is None:
        return None
    return Operations(
        launch_s=min(launch),
        update_s=min(update),
        pass_bytes_per_s=max(passes),
        attention_flop_per_s=attention,
        attention_backward_flop_per_s=attention_backward,
        convolution_s_per_flop=there[0],
        convolution_s_per_byte=there[1],
        convolution_backward_s_per_flop=back[0],
        convolution_backward_s_per_byte=back[1],
        pooled_s=min(pooled),
        distributed_launch_s=min(distributed, default=None),
    )


def _flop_and_byte_s(bench: Bench, part: str) -> tuple[float, float] | None:
    """Seconds of a FLOP and of a byte that fit all shapes of a part; None where one shape cannot tell them.

    Seconds / FLOP = the first + the second * bytes / FLOP, a line over bytes / FLOP.
    """
    known = [
        (each.payload_bytes / each.flop, each.usual_s / each.flop)
        for each in bench.timed
        if each.part == part and each.flop and each.payload_bytes
    ]
    intensities = {intensity for intensity, _ in known}
    return line(*zip(*known, strict=True)) if len(intensities) > 1 else None


def large_flop_per_s(bench: Bench, part: str, dtype: str) -> float | None:
    """Rate of the largest product of a number format, its forward and backward layouts together.

    Total FLOP / total seconds of the layouts: a training step runs each of them once.
    """
    every = [each for each in bench.timed if (each.part, each.dtype) == (part, dtype) and each.flop]
    most = max((each.flop or 0.0 for each in every), default=0.0)
    largest = [each for each in every if each.flop == most]
    return most * len(largest) / sum(each.usual_s for each in largest) if largest else None
