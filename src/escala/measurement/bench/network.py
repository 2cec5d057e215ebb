"""Probes of the links: collectives and sends over sizes, and how much computation hides. Fits nothing."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist

from escala.formats.bench_links import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    EXCHANGE,
    OPERATIONS,
    REDUCE_SCATTER,
    SEND,
)
from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, clocked, timing
from escala.measurement.bench.ranks import Group, Ranks
from escala.measurement.bench.samples import Subject
from escala.measurement.bench.shapes import OVERLAP
from escala.units import show_bytes

SIZES_BYTES: Final = tuple(2**power for power in range(10, 29, 2))
GROWTH: Final = 4.0
MOST_SHARE: Final = 1 / 8
FLOAT_BYTES: Final = 4
BETWEEN_TWO: Final = (SEND, EXCHANGE)
"""What neighbours do in pairs, whatever the group."""
SLICE_S: Final = 0.15
MOST_CALL_SHARE: Final = 1 / 40
"""Of the budget for one call: larger messages over slow links would leave no time for anything else."""
OVERLAP_BYTES: Final = {"cpu": 4 * 2**20, "cuda": 64 * 2**20}
OVERLAP_SIDE: Final = {"cpu": 256, "cuda": 4096}
# Names before and from torch 2.13 on.
_GATHER: Final = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_SCATTER: Final = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Buffers:
    """One pair of arrays that all sizes of all collectives use parts of; zeros, so that sums stay finite."""

    def __init__(self, device: Device) -> None:
        self.device = device
        most = int(device.memory_bytes * MOST_SHARE) or SIZES_BYTES[-1]
        self.most_bytes = min(SIZES_BYTES[-1], most)
        self._pair: tuple[Any, Any] | None = None

    def parts(self, floats: int) -> tuple[Any, Any]:
        """Two arrays of so many floats."""
        if self._pair is None:
            count = self.most_bytes // FLOAT_BYTES
            self._pair = (
                torch.zeros(count, device=self.device.place),
                torch.zeros(count, device=self.device.place),
            )
        return self._pair[0][:floats], self._pair[1][:floats]


def network_probes(device: Device, ranks: Ranks, budget_s: float) -> Iterator[Probe]:
    """Every operation on every level in rising sizes, all groups of as many ranks at once.

    Sends and exchanges are between neighbours whatever the group, so they are timed once a level.
    """
    buffers, before = Buffers(device), dict[tuple[int, str], Probe]()
    for size in SIZES_BYTES:
        for number, group in enumerate(ranks.groups):
            for operation in OPERATIONS:
                if size > buffers.most_bytes or (operation in BETWEEN_TWO and not group.is_whole):
                    continue
                probe = _collective(device, buffers, group, operation, size)
                probe.smaller, probe.most_s = before.get((number, operation)), MOST_CALL_SHARE * budget_s
                before[number, operation] = probe
                yield probe


def overlap_probes(device: Device, ranks: Ranks) -> Iterator[Probe]:
    """Products alone, an all-reduce alone, both at once, on every level."""
    yield from (_overlap(device, ranks, group) for group in ranks.groups if group.is_whole)


def _collective(device: Device, buffers: Buffers, group: Group, operation: str, size: int) -> Probe:
    count = len(group.members)
    floats = max(size // FLOAT_BYTES // count, 1) * count
    among = "" if group.is_whole else f" of {count}"
    subject = Subject(
        part="network",
        name=f"{group.level} {operation}{among}, {show_bytes(size)}",
        dtype="fp32",
        level=group.level,
        operation=operation,
        ranks=count,
        payload_bytes=float(floats * FLOAT_BYTES),
    )

    def make(probe: Probe) -> Sample:
        there, back = buffers.parts(floats)
        work = _works(operation, group, there, back)
        return timing(work, device.wait, trips=2 if operation == SEND else 1)(probe)

    return Probe(subjects=(subject,), make=make, is_joint=True, slice_s=SLICE_S, growth=GROWTH)


def _works(operation: str, group: Group, there: Any, back: Any) -> Callable[[], object]:
    """One call of an operation; the whole tensor is `there`, a rank's part of it the front of `back`."""
    part = back[: len(back) // len(group.members)]
    works: dict[str, Callable[[], object]] = {
        ALL_REDUCE: lambda: dist.all_reduce(there, group=group.handle),
        ALL_GATHER: lambda: _GATHER(there, part, group=group.handle),
        REDUCE_SCATTER: lambda: _SCATTER(part, there, group=group.handle),
        ALL_TO_ALL: lambda: dist.all_to_all_single(back, there, group=group.handle),
        SEND: lambda: _there_and_back(group, there, back),
        EXCHANGE: lambda: _exchange(group, there, back),
    }
    return works[operation]


def _there_and_back(group: Group, there: Any, back: Any) -> None:
    """Neighbours in pairs, all at once: one sends and receives, the other the reverse; an odd one rests."""
    other = _partner(group)
    if other is None:
        return
    if group.place % 2 == 0:
        dist.send(there, other, group=group.handle)
        dist.recv(back, other, group=group.handle)
    else:
        dist.recv(back, other, group=group.handle)
        dist.send(there, other, group=group.handle)


def _exchange(group: Group, there: Any, back: Any) -> None:
    """Neighbours in pairs, all at once: each sends to the other, as stages of 1F1B do; an odd one rests."""
    other = _partner(group)
    if other is None:
        return
    messages = [
        dist.P2POp(dist.isend, there, other, group.handle),
        dist.P2POp(dist.irecv, back, other, group.handle),
    ]
    for message in dist.batch_isend_irecv(messages):
        message.wait()


def _partner(group: Group) -> int | None:
    """The rank in the world of the other one of a pair; None for the last of an odd number."""
    place = group.place ^ 1
    return group.members[place] if place < len(group.members) else None


def _overlap(device: Device, ranks: Ranks, group: Group) -> Probe:
    payload_bytes = OVERLAP_BYTES[device.kind]
    subjects = tuple(
        Subject(
            part="overlap",
            name=f"{group.level} overlap, {what}",
            level=group.level,
            ranks=len(group.members),
            payload_bytes=None if what == OVERLAP[0] else float(payload_bytes),
        )
        for what in OVERLAP
    )
    return Probe(subjects=subjects, make=lambda probe: _three(device, ranks, group), is_joint=True)


def _three(device: Device, ranks: Ranks, group: Group) -> Sample:
    """Seconds of products, of an all-reduce that takes about as long, and of both at once."""
    side = OVERLAP_SIDE[device.kind]
    matrix = torch.randn(side, side, device=device.place)
    message = torch.zeros(OVERLAP_BYTES[device.kind] // FLOAT_BYTES, device=device.place)

    def compute(times: int) -> None:
        for _ in range(times):
            torch.mm(matrix, matrix)

    def both(times: int) -> None:
        sending = dist.all_reduce(message, group=group.handle, async_op=True)
        compute(times)
        sending.wait()

    both(1)
    sent_s, one_s = (
        ranks.most(clocked(partial(work, n), device.wait)) for work, n in ((both, 0), (compute, 1))
    )
    times = max(1, round(sent_s / one_s))
    works = (partial(compute, times), partial(both, 0), partial(both, times))
    return lambda: tuple(clocked(work, device.wait) for work in works)
