"""On which link level each parallel axis lies: strides of the mesh order, members inside each domain, speeds.

Devices are numbered so that the innermost axis of the mesh order changes fastest; a link level joins blocks
of `domain_devices` neighbours. A group of ranks that leaves a domain shares its way out with nobody else:
every device has its own port, so ranks inside the domain add their ports.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Self

import numpy as np

from escala.model.cluster import Cluster
from escala.model.columns import F64, I64, doublings
from escala.model.plan import AXES, PLACEMENTS, Plans

# All-reduce inside the switch (NVLS) pays from 5 ranks on an H200 node; below, NCCL runs its ring.
# Source: nccl-tests on 8 H200, Bekman, Machine Learning Engineering, network chapter (2026-08)
IN_NETWORK_RANKS: Final = 5
_POSITION: Final = np.array([[order.split("-").index(axis) for axis in AXES] for order in PLACEMENTS])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wire:
    """What a group of ranks finds: speed of gathers and of all-reduces per rank, latency of one operation.

    `inside` counts the ranks of the group in the innermost domain; `fast` and `slow` are the speeds inside it
    and over the slowest level crossed for traffic between single pairs; `level` is the outermost level.
    """

    ranks: F64
    inside: F64
    gather_bytes_per_s: F64
    reduce_bytes_per_s: F64
    fast_bytes_per_s: F64
    slow_bytes_per_s: F64
    latency_s: F64
    level: I64

    def take(self, rows: I64) -> "Wire":
        """The links of the given rows."""
        return Wire(**{name: getattr(self, name)[rows] for name in Wire.__slots__})


def strides(plans: Plans) -> dict[str, I64]:
    """Distance between neighbours of each axis: the product of the degrees of all axes inside it."""
    degrees = {axis: getattr(plans, axis) for axis in AXES}
    position = {axis: _POSITION[plans.placement, i] for i, axis in enumerate(AXES)}
    result = {}
    for axis in AXES:
        stride = np.ones(len(plans), np.int64)
        for other in AXES:
            if other != axis:
                stride = stride * np.where(position[other] < position[axis], degrees[other], 1)
        result[axis] = stride
    return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mesh:
    """Plans laid on a cluster: the strides of their axes, found once for all groups of ranks."""

    cluster: Cluster
    plans: Plans
    stride: Mapping[str, I64]

    @classmethod
    def of(cls, cluster: Cluster, plans: Plans) -> Self:
        """The mesh of every plan."""
        return cls(cluster=cluster, plans=plans, stride=strides(plans))


def members(mesh: Mesh, axes: tuple[str, ...], domain_devices: int) -> I64:
    """Ranks of a group over some axes that share one domain, in the group that domain borders cut smallest.

    For each axis: all ranks when the domain holds every device; otherwise gcd(stride * degree, domain) /
    stride, at least 1, since groups start at multiples of stride * degree. Source: counting.
    """
    plans = mesh.plans
    count, holds_all = np.ones(len(plans), np.int64), plans.devices <= domain_devices
    for axis in axes:
        degree: I64 = getattr(plans, axis)
        piece = np.gcd(mesh.stride[axis] * degree, domain_devices) // mesh.stride[axis]
        count = count * np.where(holds_all, degree, np.maximum(piece, 1))
    return count


def wire(mesh: Mesh, axes: tuple[str, ...], ranks: I64, thinning: I64 | None = None) -> Wire:
    """Speed and latency that a group of `ranks` over `axes` finds on the links that it crosses.

    Speed = the smallest over the crossed levels of (ranks inside the domain below) * port speed /
    oversubscription * efficiency; switches that reduce help from a few ranks on. Latency = sum over levels of
    link latency * log2(domains joined).
    Source: hierarchical bounds of nccl-tests on 1 and 4 nodes; ports add inside a domain.
    `thinning` divides the members inside a domain when the group takes only every n-th rank of its axes.
    """
    cluster, plans = mesh.cluster, mesh.plans
    step = np.ones(len(plans), np.int64) if thinning is None else thinning
    below = np.ones(len(plans), np.int64)
    gather = np.full(len(plans), np.inf)
    reduce = np.full(len(plans), np.inf)
    latency = np.zeros(len(plans))
    inside = below
    outermost = np.zeros(len(plans), np.int64)
    slow = np.full(len(plans), np.inf)
    for level, link in enumerate(cluster.links):
        here = np.minimum(np.maximum(members(mesh, axes, _domain(cluster, level)) // step, 1), ranks)
        crossed = here > below
        port = below * link.bytes_per_s / link.oversubscription if level else np.float64(link.bytes_per_s)
        gather = np.where(crossed, np.minimum(gather, port * link.gather_efficiency), gather)
        ringed = link.reduces_in_network & (here < IN_NETWORK_RANKS * below)
        share = np.where(ringed, link.gather_efficiency, link.reduce_efficiency)
        reduce = np.where(crossed, np.minimum(reduce, port * share), reduce)
        latency = latency + np.where(crossed, link.latency_s * doublings(here / below), 0.0)
        outermost = np.where(crossed, level, outermost)
        alone = link.bytes_per_s / link.oversubscription * link.gather_efficiency
        slow = np.where(crossed, np.minimum(slow, alone), slow)
        below = here
        inside = here if level == 0 else inside
    fast = cluster.links[0].bytes_per_s * cluster.links[0].gather_efficiency
    return Wire(
        ranks=ranks.astype(np.float64),
        inside=inside.astype(np.float64),
        gather_bytes_per_s=gather,
        reduce_bytes_per_s=reduce,
        fast_bytes_per_s=np.full(len(plans), fast),
        slow_bytes_per_s=slow,
        latency_s=latency,
        level=outermost,
    )


def neighbour_level(mesh: Mesh) -> I64:
    """The outermost link level that some pair of neighbouring pipeline stages crosses."""
    cluster = mesh.cluster
    span = mesh.stride["pp"] * mesh.plans.pp
    found = np.full(len(mesh.plans), len(cluster.links) - 1, np.int64)
    for level in reversed(range(len(cluster.links) - 1)):
        found = np.where(span <= _domain(cluster, level), level, found)
    return found


def neighbour_wire(cluster: Cluster, level: I64) -> tuple[F64, F64]:
    """Port speed and latency between neighbouring stages, of the outermost level that a pair crosses."""
    ports = np.array([link.bytes_per_s / link.oversubscription for link in cluster.links])
    return ports[level], np.array([link.latency_s for link in cluster.links])[level]


@cache
def _domain(cluster: Cluster, level: int) -> int:
    """Devices of one domain; the outermost level joins all, so a plan never runs out of links.

    Of rack-wide domains (more than a node) a job takes the same number each, when they do not divide it: 64
    of 72 for 256 devices.
    """
    domain = cluster.links[level].domain_devices
    if level == len(cluster.links) - 1:
        return max(cluster.devices, 1)
    if cluster.devices <= domain or cluster.devices % domain == 0 or domain <= cluster.devices_per_node:
        return domain
    return max(each for each in range(1, domain + 1) if cluster.devices % each == 0)
