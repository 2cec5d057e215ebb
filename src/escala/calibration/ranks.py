"""How well one column orders as another does: rank correlation, pairs, regret. Knows not what is ordered."""

from typing import Final

import numpy as np

from escala.model.columns import F64

APART: Final = 1.05  # nearer pairs are noise: repeated runs differ by 2 to 4 %


def average_ranks(values: F64) -> F64:
    """Ranks from 1 up; equal values share the mean of their ranks. Shape (n,)."""
    _, where, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[where], np.float64)


def spearman(first: F64, second: F64) -> float | None:
    """Correlation of the average ranks of two columns; None where one of them is all equal."""
    one, other = (ranks - ranks.mean() for ranks in (average_ranks(first), average_ranks(second)))
    scale = float(np.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / scale if scale else None


def ordered_pairs(published: F64, predicted: F64) -> tuple[int, int]:
    """Pairs whose published values are more than 5 % apart, and those of them predicted in the same order.

    A tie of the predictions counts as not ordered.
    """
    slower = published[:, None] > published[None, :] * APART
    same = slower & (predicted[:, None] > predicted[None, :])
    return int(slower.sum()), int(same.sum())


def regret(values: F64, chosen: F64) -> float:
    """What choosing by another column costs: value where that is lowest / lowest value - 1.

    Where several are lowest there, the mean of their values.
    """
    return float(values[chosen == chosen.min()].mean() / values.min()) - 1.0


def least_regret(values: F64, chosen: F64) -> float:
    """The same where, of several that are lowest there, the one with the lowest value is taken."""
    return float(values[chosen == chosen.min()].min() / values.min()) - 1.0
