"""Helpers for columns: distinct rows, safe powers, soft maxima. Knows arrays, no physics."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


def distinct(columns: Sequence[I64]) -> tuple[I64, I64]:
    """Rows that differ in the given columns: index of the first of each, and for every row its group.

    What depends on a few columns only is computed once for each distinct row and then spread by the group.
    Codes are packed into one integer, so the sort is over a single column.
    """
    if len(columns[0]) == 1:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        key = key * (int(column.max(initial=0)) - low + 1) + (column - low)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return first, group


def soft_maximum(a: F64, b: F64, power: float) -> F64:
    """Soft maximum of two non-negative columns: (a^p + b^p)^(1/p); the larger alone when one is 0."""
    large = np.maximum(a, b)
    small = np.minimum(a, b)
    ratio = np.divide(small, large, out=np.zeros_like(large), where=large > 0)
    return np.asarray(large * (1.0 + ratio**power) ** (1.0 / power), np.float64)


def doublings(counts: F64 | I64) -> F64:
    """Base-2 logarithm of a count, 0 for one."""
    return np.log2(np.maximum(counts, 1).astype(np.float64))
