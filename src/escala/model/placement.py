"""On which link level each parallel axis lies: strides of the mesh order, members inside each domain, speeds.

Devices are numbered so that the innermost axis of the mesh order changes fastest; a link level joins blocks
of `domain_devices` neighbours. A group of ranks that leaves a domain shares its way out with nobody else:
every device has its own port, so ranks inside the domain add their ports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any, Final, Self

import numpy as np

from escala.model.cluster import Cluster, Collective, Link
from escala.model.collectives import all_reduce_s, all_to_all_s, fused_exchange_s, gather_s
from escala.model.columns import F64, I64, Bool, doublings
from escala.model.measured import alpha_s, beta_s_per_byte, lines_of
from escala.model.plan import AXES, PLACEMENTS, Plans
from escala.model.torus import Ways, ways

# All-reduce inside the switch (NVLS) pays from 5 ranks on an H200 node; below, NCCL runs its ring.
# Source: nccl-tests on 8 H200, Bekman, Machine Learning Engineering, network chapter (2026-08)
IN_NETWORK_RANKS: Final = 5
_POSITION: Final = np.array([[order.split("-").index(axis) for axis in AXES] for order in PLACEMENTS])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wire:
    """What a group of ranks finds: speed and latency of each operation, per rank.

    `inside` counts the ranks of the group in the innermost domain; `fast` and `slow` are the speeds inside it
    and over the slowest level crossed for traffic between single pairs; `level` is the outermost level.
    `message_s` is what each message of a kernel costs the host where only it can drive a level crossed.
    Without a measurement scatters are as fast as gathers, and `latency_s` is that of each; `hidden_share`,
    how much of an all-reduce vanishes behind computation, is not a number then.
    """

    ranks: F64
    inside: F64
    gather_bytes_per_s: F64
    scatter_bytes_per_s: F64
    reduce_bytes_per_s: F64
    fast_bytes_per_s: F64
    slow_bytes_per_s: F64
    latency_s: F64
    scatter_latency_s: F64
    reduce_latency_s: F64
    exchange_latency_s: F64
    hidden_share: F64
    message_s: F64
    level: I64

    def gather_s(self, payload_bytes: F64, calls: F64 | float = 1.0) -> F64:
        """All-gather of a payload in so many calls; see `collectives.gather_s`."""
        return gather_s(payload_bytes, self.ranks, self.gather_bytes_per_s, self.latency_s * calls)

    def scatter_s(self, payload_bytes: F64, calls: F64 | float = 1.0) -> F64:
        """Reduce-scatter of a payload in so many calls; see `collectives.gather_s`."""
        return gather_s(payload_bytes, self.ranks, self.scatter_bytes_per_s, self.scatter_latency_s * calls)

    def reduce_s(self, payload_bytes: F64, calls: F64 | float = 1.0) -> F64:
        """All-reduce of a payload in so many calls; see `collectives.all_reduce_s`."""
        return all_reduce_s(payload_bytes, self.ranks, self.reduce_bytes_per_s, self.reduce_latency_s * calls)

    def exchange_s(self, payload_bytes: F64, more_latency_s: F64 | float = 0.0) -> F64:
        """All-to-all of what one rank sends, with a latency that comes on top; see `collectives`."""
        speeds = self.fast_bytes_per_s, self.slow_bytes_per_s
        latency_s = self.exchange_latency_s + more_latency_s
        return all_to_all_s(payload_bytes, self.ranks, self.inside, *speeds, latency_s)

    def fused_exchange_s(self, tokens: F64, token_bytes: F64, choices: int, more_latency_s: F64) -> F64:
        """All-to-all of a fused dispatcher, with a latency that comes on top; see `collectives`.

        Tokens are messages of their own, which cost the host time where devices do not drive the network.
        """
        fast_copy_s = tokens * token_bytes / self.fast_bytes_per_s
        slow_copy_s = tokens * np.maximum(token_bytes / self.slow_bytes_per_s, self.message_s)
        latency_s = self.exchange_latency_s + more_latency_s
        return fused_exchange_s(fast_copy_s, slow_copy_s, choices, self.ranks, self.inside, latency_s)

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
    A group that crosses one level only has the lines that were measured of it, where they were. On a torus
    the port is that of the cables which the group uses, latency that of its hops; see `torus.ways`.
    """
    cluster, rows = mesh.cluster, len(mesh.plans)
    step = np.ones(rows, np.int64) if thinning is None else thinning
    found_ways = _ways(mesh, axes, ranks, step)
    crossings = _crossings(mesh, axes, ranks, step, found_ways)
    gather = reduce(np.minimum, [each.gather_bytes_per_s for each in crossings])
    latency = sum((each.latency_s for each in crossings), np.zeros(rows))
    inside, first = crossings[0].joined, cluster.links[0]
    pairs = _pair_bytes_per_s(first, found_ways, inside) * first.gather_efficiency
    levels = [np.where(each.crossed, level, 0) for level, each in enumerate(crossings)]
    found = Wire(
        ranks=ranks.astype(np.float64),
        inside=inside.astype(np.float64),
        gather_bytes_per_s=gather,
        scatter_bytes_per_s=gather,
        reduce_bytes_per_s=reduce(np.minimum, [each.reduce_bytes_per_s for each in crossings]),
        fast_bytes_per_s=pairs + np.zeros(rows),
        slow_bytes_per_s=reduce(np.minimum, [each.pair_bytes_per_s for each in crossings]),
        latency_s=latency,
        scatter_latency_s=latency,
        reduce_latency_s=latency,
        exchange_latency_s=latency,
        hidden_share=np.full(rows, np.nan),
        message_s=reduce(np.maximum, [each.message_s for each in crossings]),
        level=reduce(np.maximum, levels),
    )
    crossed = sum((each.crossed.astype(np.int64) for each in crossings), np.zeros(rows, np.int64))
    return _as_measured(found, cluster, crossed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Crossing:
    """One level of links: who crosses it, and what such groups find on it; inf or 0 for the others."""

    crossed: Bool
    joined: I64  # ranks of the group inside one domain that this level joins
    gather_bytes_per_s: F64
    reduce_bytes_per_s: F64
    pair_bytes_per_s: F64
    latency_s: F64
    message_s: F64


def _crossings(
    mesh: Mesh, axes: tuple[str, ...], ranks: I64, step: I64, found_ways: Ways | None
) -> list[_Crossing]:
    """What a group finds on each level of links, the innermost first."""
    below, found = np.ones(len(mesh.plans), np.int64), []
    for level, link in enumerate(mesh.cluster.links):
        joined = _inside(mesh, axes, _domain(mesh.cluster, level), step, ranks)
        crossed, alone = joined > below, link.bytes_per_s / link.oversubscription
        port = below * alone if level else _port(link, found_ways)
        ringed = link.reduces_in_network & (joined < IN_NETWORK_RANKS * below)
        share = np.where(ringed, link.gather_efficiency, link.reduce_efficiency)
        steps = doublings(joined / below) if link.torus is None or found_ways is None else found_ways.hops
        found.append(
            _Crossing(
                crossed=crossed,
                joined=joined,
                gather_bytes_per_s=np.where(crossed, port * link.gather_efficiency, np.inf),
                reduce_bytes_per_s=np.where(crossed, port * share, np.inf),
                pair_bytes_per_s=np.where(crossed, alone * link.gather_efficiency, np.inf),
                latency_s=np.where(crossed, link.latency_s * steps, 0.0),
                message_s=np.where(crossed, link.message_s, 0.0),
            )
        )
        below = joined
    return found


def _as_measured(found: Wire, cluster: Cluster, levels: I64) -> Wire:
    """Groups that cross one level alone take the lines that were measured of it, where they were."""
    for level, link in enumerate(cluster.links):
        if link.lines:
            rows = (levels == 1) & (found.level == level) & (found.ranks > 1)
            found = _measured(found, link, rows, cluster.backend)
    return found


def _ways(mesh: Mesh, axes: tuple[str, ...], ranks: I64, thinning: I64) -> Ways | None:
    """Cables and hops of a group, where the innermost level is a torus."""
    torus = mesh.cluster.links[0].torus
    if torus is None:
        return None
    laid, before = [], np.ones(len(mesh.plans), np.int64)
    for axis in axes:
        degree: I64 = getattr(mesh.plans, axis)
        skipped = np.clip(thinning // before, 1, degree)
        span = np.where(skipped < degree, mesh.stride[axis] * degree, 0)
        laid.append((mesh.stride[axis] * skipped, span))
        before = before * degree
    return ways(torus, laid, lambda block: _inside(mesh, axes, block, thinning, ranks))


def _inside(mesh: Mesh, axes: tuple[str, ...], block: int, thinning: I64, ranks: I64) -> I64:
    return np.asarray(np.minimum(np.maximum(members(mesh, axes, block) // thinning, 1), ranks), np.int64)


def _port(link: Link, found: Ways | None) -> F64 | np.float64:
    """What a rank takes in at once on the innermost level: its port, or the cables that its group uses."""
    if found is None:
        return np.float64(link.bytes_per_s)
    return np.asarray(link.cable_bytes_per_s * np.where(found.cables > 0, found.cables, np.inf), np.float64)


def _pair_bytes_per_s(link: Link, found: Ways | None, inside: I64) -> F64 | np.float64:
    """Speed of a rank in an all-to-all on the innermost level: its port, or what the bisection leaves.

    On a torus (n - 1) / n of a payload takes load / cable speed: speed = (n - 1) / n * cable speed / load.
    """
    if found is None:
        return np.float64(link.bytes_per_s)
    share = (inside - 1) / inside
    speed = np.divide(share, found.load_ratio, out=np.full(len(inside), 1.0), where=found.load_ratio > 0)
    return np.asarray(link.cable_bytes_per_s * speed, np.float64)


def _measured(found: Wire, link: Link, rows: Bool, backend: str) -> Wire:
    """The wire with the measured lines of a link in the given rows, as speeds and latencies of the formulas.

    Speed = (ranks - 1) / ranks / beta, of an all-reduce twice that at half its latency.
    """
    names = {
        Collective.ALL_GATHER: (("gather_bytes_per_s",), "latency_s", 1.0),
        Collective.REDUCE_SCATTER: (("scatter_bytes_per_s",), "scatter_latency_s", 1.0),
        Collective.ALL_REDUCE: (("reduce_bytes_per_s",), "reduce_latency_s", 2.0),
        Collective.ALL_TO_ALL: (("fast_bytes_per_s", "slow_bytes_per_s"), "exchange_latency_s", 1.0),
    }
    ranks = np.where(rows, found.ranks, 2.0)
    columns: dict[str, Any] = {}
    for operation, (speeds, latency, trips) in names.items():
        if not lines_of(link, operation):
            continue
        speed = trips * (ranks - 1.0) / ranks / beta_s_per_byte(link, operation, ranks)
        for name in speeds:
            columns[name] = np.where(rows, speed, getattr(found, name))
        columns[latency] = np.where(
            rows, alpha_s(link, operation, ranks, backend) / trips, getattr(found, latency)
        )
    if link.hidden_share is not None:
        columns["hidden_share"] = np.where(rows, link.hidden_share, found.hidden_share)
    return replace(found, **columns)


def neighbour_level(mesh: Mesh) -> I64:
    """The outermost link level that some pair of neighbouring pipeline stages crosses."""
    cluster = mesh.cluster
    span = mesh.stride["pp"] * mesh.plans.pp
    found = np.full(len(mesh.plans), len(cluster.links) - 1, np.int64)
    for level in reversed(range(len(cluster.links) - 1)):
        found = np.where(span <= _domain(cluster, level), level, found)
    return found


def neighbour_wire(mesh: Mesh, level: I64, operation: Collective = Collective.SEND) -> tuple[F64, F64]:
    """Speed and latency between neighbouring stages, on the outermost level that a pair crosses.

    Those of the port, or of the measured line of the operation: sends, or two opposite ones at once. On a
    torus those of one cable, which all pipelines that lie side by side on it share.
    """
    found = [_neighbour(link, operation) for link in mesh.cluster.links]
    ports, waits = (np.array(each) for each in zip(*found, strict=True))
    own = _ways(mesh, ("pp",), mesh.plans.pp, np.ones(len(mesh.plans), np.int64))
    sharers = 1.0 if own is None else np.where(level == 0, own.sharers, 1.0)
    return ports[level] / sharers, waits[level]


def _neighbour(link: Link, operation: Collective) -> tuple[float, float]:
    lines = lines_of(link, operation)
    if lines:
        return link.bytes_per_s / lines[-1].wire_ratio, link.latency_s * lines[-1].latency_ratio
    return link.cable_bytes_per_s / link.oversubscription, link.latency_s


def is_measured(cluster: Cluster, level: I64, operation: Collective) -> Bool:
    """Whether an operation was measured on the outermost level that a pair of neighbouring stages crosses."""
    return np.array([bool(lines_of(link, operation)) for link in cluster.links])[level]


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
