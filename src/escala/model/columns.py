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
    rows, spread = len(columns[0]), 1
    key, most = np.zeros(rows, np.int64), 2**62 >> rows.bit_length()
    for column in columns if rows else ():
        low, high = int(column.min()), int(column.max())
        if spread * (high - low + 1) > most:
            key = _grouped(key)[1]
            spread = int(key.max()) + 1
        if low < high:
            key = key * (high - low + 1) + (column - low)
            spread *= high - low + 1
    return _grouped(key) if spread > 1 else (np.zeros(min(rows, 1), np.int64), key)


def _grouped(keys: I64) -> tuple[I64, I64]:
    """The first row of each key in rising order, and for every row its place there.

    Keys are sorted with their rows packed behind them: faster than a stable sort, and as stable.
    """
    bits = len(keys).bit_length()
    packed = np.sort(keys << bits | np.arange(len(keys)))
    row, ordered = packed & (1 << bits) - 1, packed >> bits
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    group = np.empty(len(keys), np.int64)
    group[row] = np.cumsum(is_first) - 1
    return row[is_first], group


def soft_maximum(a: F64, b: F64, power: float) -> F64:
    """Soft maximum of two non-negative columns: (a^p + b^p)^(1/p); the larger alone when one is 0."""
    large = np.maximum(a, b)
    small = np.minimum(a, b)
    ratio = np.divide(small, large, out=np.zeros_like(large), where=large > 0)
    return np.asarray(large * (1.0 + ratio**power) ** (1.0 / power), np.float64)


def doublings(counts: F64 | I64) -> F64:
    """Base-2 logarithm of a count, 0 for one."""
    return np.log2(np.maximum(counts, 1).astype(np.float64))
