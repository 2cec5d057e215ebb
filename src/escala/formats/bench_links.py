"""Fitted lines of a bench.json as link levels of a cluster. Knows the payloads of the model's collectives."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from escala.catalog.clusters import MOST_DEVICES
from escala.catalog.links import network
from escala.errors import InvalidInput
from escala.formats.bench_record import NETWORK, NODE, Bench, LineFit
from escala.model.cluster import Collective, Line, Link
from escala.units import show_seconds, show_si

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, EXCHANGE = (each.value for each in Collective)
OPERATIONS: Final = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, EXCHANGE)
_NEEDED: Final = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND)
_UNCROSSED: Final = "400 Gb/s"
"""Stands where one device has nobody to talk to, since a cluster has at least one link; never crossed."""


def links_of(bench: Bench, origin: str) -> tuple[Link, ...]:
    """The measured link levels from the inside out; the network joins as many nodes as one likes."""
    found = [_link(bench, level, origin) for level in (NODE, NETWORK) if lines_of(bench, level)]
    return tuple(found) or (network(_UNCROSSED, MOST_DEVICES),)


def lines_of(bench: Bench, level: str) -> Mapping[str, LineFit]:
    """The fitted lines of one level by operation, among all of its ranks."""
    own = [line for line in bench.lines if line.level == level]
    return {line.operation: line for line in sorted(own, key=lambda line: line.ranks)}


def words(link: Link) -> str:
    """A measured link in words."""
    return f"{link.name} {show_si(link.bytes_per_s, 'B/s')}, {show_seconds(link.latency_s)}"


def _link(bench: Bench, level: str, origin: str) -> Link:
    lines = lines_of(bench, level)
    for operation in _NEEDED:
        if operation not in lines or not typical(lines[operation])[1] > 0:
            raise InvalidInput(
                f"{origin} holds no {operation} of its {level} link; measure again with a larger --budget"
            )
    alone = 1.0 / typical(lines[SEND])[1]
    found = Link(
        name=f"measured {level}",
        domain_devices=bench.ranks_per_node if level == NODE else MOST_DEVICES,
        bytes_per_s=alone,
        latency_s=latency_s(lines[ALL_REDUCE]),
        gather_efficiency=gather_bytes_per_s(lines[ALL_GATHER], lines[REDUCE_SCATTER]) / alone,
        reduce_efficiency=reduce_bytes_per_s(lines[ALL_REDUCE]) / alone,
        hidden_share=next((each.hidden_share for each in bench.overlaps if each.level == level), None),
    )
    every = [_measured(found, line) for line in bench.lines if line.level == level]
    return replace(found, lines=tuple(line for line in every if line is not None))


def _measured(link: Link, line: LineFit) -> Line | None:
    """A fitted line in terms of its link; None without latency, or where more bytes took no longer."""
    alpha_s, beta_s_per_byte = typical(line)
    if not (link.latency_s > 0 and beta_s_per_byte > 0):
        return None
    return Line(
        operation=Collective(line.operation),
        ranks=line.ranks,
        latency_ratio=alpha_s / link.latency_s,
        wire_ratio=beta_s_per_byte * link.bytes_per_s,
    )


def typical(line: LineFit) -> tuple[float, float]:
    """Alpha and beta of the typical line; of the best one in files that have no other."""
    if line.typical_alpha_s is None or line.typical_beta_s_per_byte is None:
        return line.alpha_s.value, line.beta_s_per_byte.value
    return line.typical_alpha_s, line.typical_beta_s_per_byte


def latency_s(all_reduce: LineFit) -> float:
    """Latency of one doubling of the ranks: alpha of all-reduce / (2 log2 ranks), as the model charges it."""
    return typical(all_reduce)[0] / (2.0 * math.log2(all_reduce.ranks))


def reduce_bytes_per_s(line: LineFit) -> float:
    """Wire speed of all-reduce: 2 (ranks - 1) / ranks / beta."""
    return 2.0 * (line.ranks - 1) / line.ranks / typical(line)[1]


def gather_bytes_per_s(gather: LineFit, scatter: LineFit) -> float:
    """Wire speed of all-gather and reduce-scatter, one number in the model: from the mean of their betas."""
    beta = (typical(gather)[1] + typical(scatter)[1]) / 2.0
    return (gather.ranks - 1) / gather.ranks / beta
