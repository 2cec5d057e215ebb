"""The median of few samples and how far it is known. Knows counting, no clock and no distribution."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Final

CERTAINTY: Final = 0.95
LEAST_SAMPLES: Final = 6
"""The fewest samples whose smallest and largest hold the true median that surely: 1 - 2 / 2^6 = 97 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median with the interval that holds the true one at 95 % or more; no interval below six samples."""

    median: float
    low: float | None
    high: float | None
    samples: int


def spread(samples: Sequence[float]) -> Spread:
    """Median, and the innermost pair of ranked samples that holds the true median in 95 % of cases.

    Whatever the distribution: a sample is below the true median as often as a coin shows heads.
    Source: sign test; Conover, Practical Nonparametric Statistics, section 3.2.
    """
    ranked = sorted(samples)
    depth = _depth(len(ranked))
    return Spread(
        median=median(ranked),
        low=ranked[depth - 1] if depth else None,
        high=ranked[-depth] if depth else None,
        samples=len(ranked),
    )


def _depth(samples: int) -> int:
    """The largest d with P(fewer than d of n coins show heads) <= 2.5 %; 0 where there is none."""
    most = (1.0 - CERTAINTY) / 2.0 * 2.0**samples
    depth, below = 0, 1  # below: ways of fewer than depth + 1 heads
    while below <= most:
        depth += 1
        below += comb(samples, depth)
    return depth
