"""Fitted lines of a bench.json as link levels of a cluster. Knows the payloads of the model's collectives."""

import math
from collections.abc import Mapping
from typing import Final

from escala.catalog.clusters import MOST_DEVICES
from escala.catalog.links import network
from escala.errors import InvalidInput
from escala.formats.bench_record import NETWORK, NODE, Bench, LineFit
from escala.model.cluster import Link
from escala.units import show_seconds, show_si

SEND, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = (
    "send",
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
)
OPERATIONS: Final = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND)
_NEEDED: Final = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND)
_UNCROSSED: Final = "400 Gb/s"
"""Stands where one device has nobody to talk to, since a cluster has at least one link; never crossed."""


def links_of(bench: Bench, origin: str) -> tuple[Link, ...]:
    """The measured link levels from the inside out; the network joins as many nodes as one likes."""
    found = [_link(bench, level, origin) for level in (NODE, NETWORK) if lines_of(bench, level)]
    return tuple(found) or (network(_UNCROSSED, MOST_DEVICES),)


def lines_of(bench: Bench, level: str) -> Mapping[str, LineFit]:
    """The fitted lines of one level by operation."""
    return {line.operation: line for line in bench.lines if line.level == level}


def words(link: Link) -> str:
    """A measured link in words."""
    return f"{link.name} {show_si(link.bytes_per_s, 'B/s')}, {show_seconds(link.latency_s)}"


def _link(bench: Bench, level: str, origin: str) -> Link:
    lines = lines_of(bench, level)
    for operation in _NEEDED:
        if operation not in lines or not lines[operation].beta_s_per_byte.value > 0:
            raise InvalidInput(
                f"{origin} holds no {operation} of its {level} link; measure again with a larger --budget"
            )
    alone = 1.0 / lines[SEND].beta_s_per_byte.value
    return Link(
        name=f"measured {level}",
        domain_devices=bench.ranks_per_node if level == NODE else MOST_DEVICES,
        bytes_per_s=alone,
        latency_s=latency_s(lines[ALL_REDUCE]),
        gather_efficiency=gather_bytes_per_s(lines[ALL_GATHER], lines[REDUCE_SCATTER]) / alone,
        reduce_efficiency=reduce_bytes_per_s(lines[ALL_REDUCE]) / alone,
    )


def latency_s(all_reduce: LineFit) -> float:
    """Latency of one doubling of the ranks: alpha of all-reduce / (2 log2 ranks), as the model charges it."""
    return all_reduce.alpha_s.value / (2.0 * math.log2(all_reduce.ranks))


def reduce_bytes_per_s(line: LineFit) -> float:
    """Wire speed of all-reduce: 2 (ranks - 1) / ranks / beta."""
    return 2.0 * (line.ranks - 1) / line.ranks / line.beta_s_per_byte.value


def gather_bytes_per_s(gather: LineFit, scatter: LineFit) -> float:
    """Wire speed of all-gather and reduce-scatter, one number in the model: from the mean of their betas."""
    beta = (gather.beta_s_per_byte.value + scatter.beta_s_per_byte.value) / 2.0
    return (gather.ranks - 1) / gather.ranks / beta
