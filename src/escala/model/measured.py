"""Measured lines of collectives between and beyond the numbers of ranks that were timed. Knows no plan.

A line is alpha + beta * payload, see `cluster.Line`.
"""

from typing import Final

import numpy as np

from escala.model.cluster import Collective, Line, Link
from escala.model.columns import F64, doublings

RINGS: Final = frozenset({"gloo"})
"""Backends whose collectives are rings. Source: gloo, docs/algorithms.md (all-reduce, ring)"""


def lines_of(link: Link, operation: Collective) -> list[Line]:
    """What was measured of one operation, in rising ranks."""
    own = [line for line in link.lines if line.operation is operation]
    return sorted(own, key=lambda line: line.ranks)


def alpha_s(link: Link, operation: Collective, ranks: F64, backend: str) -> F64:
    """Seconds of an empty message: through the measured ones, straight over steps, from 0 at one rank.

    Steps are ranks - 1 on backends that run rings whatever the size, else log2 ranks. Beyond the last
    measured number of ranks the last slope goes on.
    Source: Thakur, Rabenseifner, Gropp 2005, sections 3 (recursive doubling) and 4 (ring).
    """
    lines = lines_of(link, operation)
    counts = np.array([1.0, *(line.ranks for line in lines)])
    latencies = np.array([0.0, *(line.latency_ratio for line in lines)])
    steps, wanted = _steps(counts, backend), _steps(ranks, backend)
    slope = max(latencies[-1] - latencies[-2], 0.0) / (steps[-1] - steps[-2])
    found = np.interp(wanted, steps, latencies) + slope * np.maximum(wanted - steps[-1], 0.0)
    return np.asarray(found * link.latency_s, np.float64)


def _steps(ranks: F64, backend: str) -> F64:
    return ranks - 1.0 if backend in RINGS else doublings(ranks)


def beta_s_per_byte(link: Link, operation: Collective, ranks: F64) -> F64:
    """Seconds a byte: (ranks - 1) / ranks times what a byte on the wire was measured to cost.

    That is straight between measured numbers of ranks and constant beyond.
    Source: ring algorithms, Thakur, Rabenseifner, Gropp 2005, section 4.
    """
    lines = lines_of(link, operation)
    counts = np.array([float(line.ranks) for line in lines])
    costs = np.array([line.wire_ratio for line in lines]) * counts / (counts - 1.0)
    crossings = (ranks - 1.0) / ranks * np.interp(ranks, counts, costs)
    return np.asarray(crossings / link.bytes_per_s, np.float64)
