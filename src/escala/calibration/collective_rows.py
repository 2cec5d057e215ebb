"""Published collectives: a printed bandwidth or time as seconds, beside those that the model's formulas give.

Bandwidths are those of nccl-tests: algorithm bandwidth is size / time, bus bandwidth that times a factor of
the operation. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md. Knows no training run.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Final

import numpy as np

from escala.calibration.failure import Unreadable
from escala.calibration.hardware import device_bytes_per_s
from escala.calibration.operations import NO_DEVICE, NO_NUMBER, Cells, Operation, number, text
from escala.calibration.rows import count
from escala.catalog.accelerators import accelerator_entries
from escala.catalog.clusters import MOST_DEVICES, cluster_for
from escala.catalog.engines import assumptions
from escala.catalog.links import link
from escala.catalog.loader import find
from escala.errors import InvalidInput
from escala.model.cluster import Cluster, Link
from escala.model.collectives import all_reduce_s, all_to_all_s, gather_s, send_s
from escala.model.columns import F64
from escala.model.placement import Mesh, Wire, neighbour_level, neighbour_wire, wire
from escala.model.plan import Plan, Plans


class SizeClass(StrEnum):
    """What the time of a message is made of: waiting, both, or bytes."""

    LATENCY = "up to 1 MiB"
    MIDDLE = "1 to 64 MiB"
    BANDWIDTH = "from 64 MiB"


_LATENCY_BYTES: Final = 1 << 20
_BANDWIDTH_BYTES: Final = 1 << 26
# A bandwidth whose last printed digit moves it by more than this says nothing about the time.
_MOST_ROUNDING: Final = 0.05
_BANDWIDTH: Final = re.compile(r"(bus|alg) (\d+(?:\.(\d*))?)")
_RING: Final = re.compile(r"nvls[ _](?:enable=0|off)|ring\b", re.IGNORECASE)
# Networks that texts call by name: link of the catalog, and ports of a node.
_NETWORKS: Final = {"efa v4": ("efa-v4", 8), "tcpxo": ("tcpxo", 8), "omni-path": ("omni-path-100", 4)}

Predicted = Callable[[F64, Wire], F64]


def _to_all(payload_bytes: F64, found: Wire) -> F64:
    return all_to_all_s(
        payload_bytes,
        *(found.ranks, found.inside, found.fast_bytes_per_s, found.slow_bytes_per_s, found.latency_s),
    )


def _gathered(payload_bytes: F64, found: Wire) -> F64:
    return gather_s(payload_bytes, found.ranks, found.gather_bytes_per_s, found.latency_s)


def _reduced(payload_bytes: F64, found: Wire) -> F64:
    return all_reduce_s(payload_bytes, found.ranks, found.reduce_bytes_per_s, found.latency_s)


# Name, transfers that a ring makes for each rank and part (0: point to point), the formula of the model.
_KINDS: Final[Mapping[str, tuple[str, float, Predicted]]] = {
    "all_reduce": ("all-reduce", 2.0, _reduced),
    "all_gather": ("all-gather", 1.0, _gathered),
    "reduce_scatter": ("reduce-scatter", 1.0, _gathered),
    "all_to_all": ("all-to-all", 1.0, _to_all),
}
_SEND: Final = "sendrecv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One published collective as printed, with its seconds."""

    op: str
    message_bytes: int
    devices: int
    devices_per_node: int | None
    interconnect: str
    published_s: float


def bus_factor(op: str, devices: int) -> float:
    """Bus over algorithm bandwidth: 2 (n - 1) / n of an all-reduce, (n - 1) / n of the others, 1 of a send.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    return 1.0 if op == _SEND else _KINDS[op][1] * (devices - 1) / devices


def collective(row: Cells) -> Collective:
    """The row as typed numbers, or why it is none of the model's collectives."""
    op, devices = text(row, "op"), count(text(row, "n_devices"))
    if op.startswith(("memcpy", "p2p_copy")):
        raise Unreadable("a copy between two memories, no collective")
    if op != _SEND and op not in _KINDS:
        raise Unreadable("operation that the model has no formula for")
    size = count(text(row, "message_bytes"))
    if size is None:
        raise Unreadable("message size not printed")
    if devices is None or devices < 2:
        raise Unreadable("fewer than two devices")
    return Collective(
        op=op,
        message_bytes=size,
        devices=devices,
        devices_per_node=count(text(row, "devices_per_node")),
        interconnect=text(row, "interconnect"),
        published_s=_published_s(row, op, size, devices),
    )


def _published_s(row: Cells, op: str, size: int, devices: int) -> float:
    """Seconds as printed, else size * bus factor / bus bandwidth, or size / algorithm bandwidth."""
    printed_us = number(text(row, "latency_us"))
    if printed_us is not None:
        return printed_us * 1e-6
    printed = _BANDWIDTH.fullmatch(text(row, "bus_or_alg_bw_GBps"))
    speed = number(printed[2]) if printed else None
    if printed is None or speed is None:
        raise Unreadable(NO_NUMBER)
    if 0.5 * 10.0 ** -len(printed[3] or "") > _MOST_ROUNDING * speed:
        raise Unreadable("bandwidth printed in too few digits")
    return size * (bus_factor(op, devices) if printed[1] == "bus" else 1.0) / (speed * 1e9)


def size_class(message_bytes: int) -> SizeClass:
    """Latency-bound up to 1 MiB, bandwidth-bound from 64 MiB on."""
    if message_bytes <= _LATENCY_BYTES:
        return SizeClass.LATENCY
    return SizeClass.MIDDLE if message_bytes < _BANDWIDTH_BYTES else SizeClass.BANDWIDTH


@cache
def cluster_of(interconnect: str, devices: int, per_node: int | None) -> Cluster:
    """The machine of an interconnect text: its device, its network by name or rate, else the usual one."""
    try:
        whole = cluster_for(_device(interconnect), devices, devices_per_node=per_node)
    except InvalidInput as error:
        raise Unreadable("machine not in the catalog") from error
    links = (*whole.links[:-1], _outside(interconnect.lower(), whole))
    return replace(whole, links=tuple(map(_ringed, links)) if _RING.search(interconnect) else links)


def _device(interconnect: str) -> str:
    known = accelerator_entries()
    for word in re.findall(r"[\w-]+", interconnect):
        found = find(word, known)
        if found is not None:
            return found
    raise Unreadable(NO_DEVICE)


def _outside(printed: str, whole: Cluster) -> Link:
    usual, per_node = whole.links[-1], whole.devices_per_node
    for words, (name, ports) in _NETWORKS.items():
        if words in printed:
            return link(name, MOST_DEVICES, ports_per_device=ports / per_node)
    rate = device_bytes_per_s(printed, per_node)
    return replace(usual, bytes_per_s=rate) if rate else usual


def _ringed(given: Link) -> Link:
    """The same link where switches that could reduce are told not to."""
    if not given.reduces_in_network:
        return given
    return replace(
        given,
        name=f"{given.name} in a ring",
        reduces_in_network=False,
        reduce_efficiency=given.gather_efficiency,
    )


@cache
def _wire(cluster: Cluster, devices: int) -> Wire:
    """What one data-parallel group over all devices finds."""
    plans = Plans.of(Plan(dp=devices))
    return wire(Mesh.of(cluster, plans), ("dp",), plans.dp)


def predicted(given: Collective) -> tuple[float, str]:
    """Seconds of a collective by the model, and the outermost link that it crosses."""
    cluster = cluster_of(given.interconnect, given.devices, given.devices_per_node)
    payload_bytes = np.array([float(given.message_bytes)])
    if given.op == _SEND:
        return _sent(cluster, given.devices, payload_bytes)
    found = _wire(cluster, given.devices)
    seconds = _KINDS[given.op][2](payload_bytes, found)
    return float(seconds[0]), cluster.links[int(found.level[0])].name


def _sent(cluster: Cluster, devices: int, payload_bytes: F64) -> tuple[float, str]:
    """A send between neighbouring stages, at the share and with the latency of a pipeline's transfers."""
    known = assumptions()
    mesh = Mesh.of(cluster, Plans.of(Plan(pp=devices)))
    level = neighbour_level(mesh)
    speed, latency = neighbour_wire(mesh, level)
    seconds = send_s(payload_bytes, speed * known.transfer_efficiency, latency + known.transfer_latency_s)
    return float(seconds[0]), cluster.links[int(level[0])].name


def read_collective(name: str, row: Cells) -> Operation:
    """A published collective beside the model's seconds."""
    given = collective(row)
    seconds, crossed = predicted(given)
    return Operation(
        id=name,
        operation="send" if given.op == _SEND else _KINDS[given.op][0],
        of=crossed,
        size=size_class(given.message_bytes),
        unit="s",
        published=given.published_s,
        predicted=seconds,
        source=text(row, "source"),
    )
