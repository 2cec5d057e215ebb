"""Loaders of training data in a script of several processes."""

import ast
from collections.abc import Iterator
from typing import Final

from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.script.code import is_open, keyword, words
from escala.foreign.script.parts import Program

SHARDED: Final = frozenset(
    (
        "split_dataset_by_node",
        "shard",
        "split_by_node",
        "num_shards",
        "StatefulDataLoader",
        "rank",
        "IterableDataset",
    )
)
"""Names by which a program says that a rank has samples of its own, other than by a sampler."""
RANDOM: Final = frozenset(
    (
        "RandomCrop",
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "RandAugment",
        "ColorJitter",
        "AutoAugment",
        "MixUp",
    )
)


def loading_rules(job: Job, program: Program) -> Iterator[Finding]:
    """What is wrong with the loaders."""
    for call in program.called("DataLoader"):
        yield from _shuffled(program, call)
    if not program.is_spread or program.is_handed_over:
        return
    yield from _epochs(program)
    yield from _seeds(program)
    for call in program.loaders:
        yield from _unsampled(program, call)
        yield from _size(job, program, call)
        yield from _workers(program, call)


def _shuffled(program: Program, call: ast.Call) -> Iterator[Finding]:
    """shuffle=True beside a sampler, which is refused."""
    sampler, shuffle = keyword(call, "sampler", 3), keyword(call, "shuffle", 2)
    if sampler is None or shuffle is None or program.constant(shuffle) is not True:
        return
    if isinstance(program.meant(sampler), ast.Call):
        yield finding("script-shuffle-with-sampler", program.place(shuffle))


def _unsampled(program: Program, call: ast.Call) -> Iterator[Finding]:
    """A loader whose samples nothing divides over the ranks."""
    given = [keyword(call, "sampler", 3), keyword(call, "batch_sampler", 4)]
    if any(each is not None for each in given) or is_open(call) or not call.args:
        return
    data = program.meant(call.args[0])
    about = words(call.args[0]) | (words(data) if data is not None else set())
    if about & SHARDED or program.attributes & SHARDED or program.bound & SHARDED - {"rank"}:
        return
    yield finding("script-loader-undivided", program.place(call))


def _epochs(program: Program) -> Iterator[Finding]:
    """A sampler that is not told the epoch, in a loop over epochs."""
    samplers = [
        call
        for call in program.called("DistributedSampler")
        if program.constant(keyword(call, "shuffle", 3)) is not False
    ]
    nested = any(program.loop(loop) is not None for loop in program.loops)
    if samplers and nested and "set_epoch" not in program.attributes:
        yield finding("script-epoch-untold", program.place(samplers[0]))


def _seeds(program: Program) -> Iterator[Finding]:
    """One seed on all ranks, and transforms that draw numbers."""
    drawn = program.attributes | program.bound
    for call in program.called("manual_seed", "seed_everything"):
        if call.args and isinstance(program.meant(call.args[0]), ast.Constant) and drawn & RANDOM:
            yield finding("script-seed-equal", program.place(call), transform=sorted(drawn & RANDOM)[0])
            return


def _size(job: Job, program: Program, call: ast.Call) -> Iterator[Finding]:
    """The batch of a loader is that of one rank."""
    given = keyword(call, "batch_size", 1)
    count, devices = program.count(given), job.sure("devices")
    if given is not None and count is not None and devices is not None and devices > 1:
        place = program.place(given)
        yield finding("script-batch-of-rank", place, batch=count, ranks=devices, product=count * devices)


def _workers(program: Program, call: ast.Call) -> Iterator[Finding]:
    workers = keyword(call, "num_workers", 5)
    if is_open(call) or len(program.document.text) == 0:
        return
    if workers is None or program.constant(workers) == 0:
        yield finding("script-loader-alone", program.place(call))
    elif keyword(call, "pin_memory", 7) is None and program.called("cuda", "to"):
        yield finding("script-loader-pageable", program.place(call))
