"""What a bench.json misses of its machine, and which numbers stand in when a plan is made with it.

An older file, a short budget or a single rank leave parts out; a plan may be made all the same, and says so.
"""

from collections.abc import Iterator
from typing import Final

from escala.formats.bench_links import ALL_TO_ALL
from escala.formats.bench_operations import FORMAT, operations_of
from escala.formats.bench_record import Bench
from escala.model.cluster import Accelerator

SINGLE: Final = {
    "attention": "attention",
    "attention backward": "attention backward",
    "convolution": "convolutions",
    "convolution backward": "convolutions backward",
    "pooling": "max-pools",
    "passes": "passes over activations",
    "launch": "launches",
    "optimizer": "AdamW",
}
"""Parts that a step of a processor is made of beside products, and what they time."""
OF_FORMAT: Final = ("attention", "attention backward")
KERNELS: Final = {1: "1 x 1", 3: "3 x 3"}
HALF: Final = ("fp16", "bf16")


def unmeasured(bench: Bench, known: Accelerator | None) -> tuple[str, ...]:
    """What stands in for each number that the file does not have; `known` is the catalog's device, if any."""
    own = _processor(bench) if bench.device.kind == "cpu" else _device(bench, known)
    return (*own, *_usual(bench), *_links(bench))


def _processor(bench: Bench) -> Iterator[str]:
    timed = {each.part for each in bench.timed if each.part not in OF_FORMAT or each.dtype == FORMAT}
    kernels = {each.shape[-1] for each in bench.timed if each.part == "convolution" and each.shape}
    if operations_of(bench) is None:
        absent = [word for part, word in SINGLE.items() if part not in timed]
        lacking = ", ".join(absent) or "convolutions of more than one shape"
        yield (
            "attention, convolutions, passes, launches and AdamW by constants of GPUs, "
            f"since it has no times of {lacking}"
        )
        return
    for kernel in sorted(KERNELS.keys() - kernels):
        yield f"convolutions of {KERNELS[kernel]} by those of other sizes, since it has no times of them"
    if bench.ranks > 1 and "distributed launch" not in timed:
        yield "launches on tensors split over ranks as if they took no time, since it has no times of them"


def _device(bench: Bench, known: Accelerator | None) -> Iterator[str]:
    formats = {each.dtype for each in bench.timed if each.part == "gemm" and each.flop}
    if known is not None and not formats.intersection(HALF):
        yield "16-bit products by the catalog's share of the peak, since it has no times of them"
    if known is None and not any(each.part == "attention" for each in bench.timed):
        yield "attention by what other devices reach, since it has no times of it"


def _usual(bench: Bench) -> Iterator[str]:
    if any(each.typical_s is None for each in bench.timed):
        yield "single operations by their median times, since it has no typical ones"


def _links(bench: Bench) -> Iterator[str]:
    levels = sorted({each.level for each in bench.lines})
    if any(each.typical_alpha_s is None for each in bench.lines):
        yield "links by their best times, since it has no typical ones"
    for level in levels:
        if not any(each.level == level and each.operation == ALL_TO_ALL for each in bench.lines):
            yield f"all-to-all of the {level} link by the speed of sends, since it has no times of it"
        if not any(each.level == level and each.hidden_share is not None for each in bench.overlaps):
            yield f"what the {level} link hides behind computation by the engine record, since none was timed"
