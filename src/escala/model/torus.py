"""What a group of ranks finds on a torus, whose devices have cables to their neighbours and no switch.

Devices are numbered so that the first dimension changes fastest, so the innermost axis of the mesh order lies
along it. Knows counts of cables and hops; speeds and seconds are those of `placement`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from escala.model.cluster import Torus
from escala.model.columns import F64, I64

Laid: TypeAlias = Sequence[tuple[I64, I64]]
"""Axes of a group: the distance between neighbouring ranks, and the devices that the whole axis spans."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ways:
    """Cables and hops of a group of ranks. Shapes: (n,).

    `cables` bring data in at the same time; `load_ratio` is how often one rank's payload crosses the busiest
    cable in an all-to-all; `hops` is the longest way; `sharers` are the groups that send on one cable.
    """

    cables: F64
    load_ratio: F64
    hops: F64
    sharers: F64


def ways(torus: Torus, laid: Laid, members: Callable[[int], I64]) -> Ways:
    """Sum over dimensions of 2 cables on a ring or 1 on a line, over the groups that share the cables.

    A ring is closed where the dimension wraps and the group goes once around it; else the group is a line,
    whose last device has one cable. All dimensions work at once. In an all-to-all of e ranks, e / 8 of a
    payload crosses each cable of a ring (e even), twice that each of a line: half of all data crosses the
    bisection of the longest dimension. `members` counts the ranks in a block of so many devices.
    Source: counting; the bisection of a pod is the one that its maker prints, see docs/model/communication.
    """
    low, below = 1, members(1)
    cables = load = hops = np.zeros(len(below))
    sharers = np.ones(len(below))
    for size, wraps in zip(torus.shape, torus.wraps, strict=True):
        here = members(low * size)
        ranks, apart = here / below, _apart(laid, low, low * size, np.full(len(below), float(size)))
        used, is_ring = ranks > 1, wraps & (ranks * apart == size)
        ends = np.where(is_ring, 2.0, 1.0)
        cables = cables + np.where(used, ends / apart, 0.0)
        load = np.maximum(load, np.where(used, np.floor(ranks**2 / 4) / ranks * apart / ends, 0.0))
        hops = hops + np.where(used, np.where(is_ring, np.floor(ranks / 2), ranks - 1) * apart, 0.0)
        sharers = np.maximum(sharers, np.where(used, apart, 1.0))
        low, below = low * size, here
    return Ways(cables=cables, load_ratio=load, hops=hops, sharers=sharers)


def _apart(laid: Laid, low: int, high: int, most: F64) -> F64:
    """Steps along one dimension between neighbours of a group; as many groups lie side by side on it."""
    apart = most
    for stride, span in laid:
        lies = (stride < high) & (span > low)
        apart = np.where(lies, np.minimum(apart, np.maximum(stride / low, 1.0)), apart)
    return apart
