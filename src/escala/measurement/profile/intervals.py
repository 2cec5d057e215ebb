"""Sets of moments as sorted, disjoint spans: union, intersection, difference, length. Knows no trace.

Spans are an array of shape (n, 2), start and end, where every end is above its start and at most the next
start. What comes in as raw spans may overlap, touch, be empty or out of order; `union` puts it right.
"""

from typing import Final

import numpy as np

from escala.model.columns import F64, I64, Bool

NOTHING: Final = np.empty((0, 2))


def raw(start_s: F64, end_s: F64) -> F64:
    """Starts and ends as spans, not yet sorted or disjoint."""
    return np.column_stack((start_s, end_s)) if len(start_s) else NOTHING


def union(*several: F64) -> F64:
    """The moments in any of the spans, sorted and disjoint; spans that touch become one."""
    spans = np.concatenate(several) if several else NOTHING
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return NOTHING
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    is_first = np.concatenate(([True], spans[1:, 0] > reached[:-1]))
    last = np.concatenate((np.flatnonzero(is_first)[1:] - 1, [len(spans) - 1]))
    return np.column_stack((spans[is_first, 0], reached[last]))


def both(one: F64, other: F64) -> F64:
    """The moments in one set and in the other."""
    if not len(one) or not len(other):
        return NOTHING
    first = np.searchsorted(other[:, 1], one[:, 0], "right")
    counts = np.maximum(np.searchsorted(other[:, 0], one[:, 1], "left") - first, 0)
    mine = np.repeat(np.arange(len(one)), counts)
    within = np.arange(len(mine)) - np.repeat(np.cumsum(counts) - counts, counts)
    theirs = np.repeat(first, counts) + within
    starts = np.maximum(one[mine, 0], other[theirs, 0])
    return np.column_stack((starts, np.minimum(one[mine, 1], other[theirs, 1])))


def without(one: F64, other: F64) -> F64:
    """The moments in one set that are not in the other."""
    if not len(one) or not len(other):
        return one
    edges = np.concatenate(([-np.inf], other.ravel(), [np.inf])).reshape(-1, 2)
    return both(one, edges[edges[:, 1] > edges[:, 0]])


def closed(spans: F64, gap_s: float) -> F64:
    """The spans with gaps of at most so many seconds filled."""
    if not len(spans):
        return NOTHING
    is_first = np.concatenate(([True], spans[1:, 0] - spans[:-1, 1] > gap_s))
    last = np.concatenate((np.flatnonzero(is_first)[1:] - 1, [len(spans) - 1]))
    return np.column_stack((spans[is_first, 0], spans[last, 1]))


def total_s(spans: F64) -> float:
    """Seconds of all spans together: the sum of end - start."""
    return float(np.sum(spans[:, 1] - spans[:, 0]))


def holds(spans: F64, moments: F64) -> Bool:
    """Whether each moment lies in a span, its start included and its end not."""
    at: I64 = np.searchsorted(spans[:, 0], moments, "right") - 1
    is_after = at >= 0
    ends = spans[:, 1] if len(spans) else np.array([-np.inf])
    return is_after & (moments < ends[np.maximum(at, 0)])
