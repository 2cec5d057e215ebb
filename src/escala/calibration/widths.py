"""How wide the intervals must be: quantiles of left-out errors by regime, wider where fields were assumed.

Logarithms of independent factors add as squares: width = sqrt(regime^2 + sum of assumed^2).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from escala.calibration.reading import Reading
from escala.model.columns import F64
from escala.model.interval import LEAST_RATIO

COVERAGE: Final = 0.8
# What an assumed field may change the step by, as a factor; others change it little.
# Source: step-time study on published rows, 2026-11-30; layout and framework as engines differ.
ASSUMED: Final = {
    "micro-batch": 1.3,
    "batch": 1.3,
    "precision": 1.3,
    "layout": 1.3,
    "framework": 1.3,
    "sequence length": 1.3,
    "padding": 1.2,
    "virtual stages": 1.1,
    "recompute": 1.05,
    "layers": 1.1,
    "heads": 1.05,
    "vocabulary": 1.05,
}
_LEAST: Final = math.log(LEAST_RATIO)
_MOST: Final = math.log(10.0)


def assumed_width(imputed: Iterable[str]) -> float:
    """Logarithm of the factor that assumed fields of a row add to its interval."""
    return math.sqrt(sum(math.log(ASSUMED.get(field, 1.0)) ** 2 for field in imputed))


def widened(ratio: float, imputed: Iterable[str]) -> float:
    """The factor of an interval with what assumed fields add to it."""
    return math.exp(math.hypot(math.log(ratio), assumed_width(imputed)))


def ratio_that_covers(errors: F64, readings: Sequence[Reading]) -> float:
    """The factor whose interval, widened by each row's assumed fields, covers 80 % of the log errors.

    A row is covered when error^2 <= width^2 + assumed^2, so width^2 is the 80 % quantile of error^2 -
    assumed^2; never below the noise of repeats.
    """
    assumed = np.array([assumed_width(reading.imputed) for reading in readings])
    squared = float(np.quantile(errors**2 - assumed**2, COVERAGE, method="higher"))
    return math.exp(min(max(math.sqrt(max(squared, 0.0)), _LEAST), _MOST))
