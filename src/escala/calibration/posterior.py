"""The most probable values of free numbers, given slopes: robust least squares with priors. Arrays only.

Minimises the sum over rows of weight * 2 (sqrt(1 + (r / scale)^2) - 1), a soft absolute value of the error
r, plus the sum over numbers of (value / prior sd)^2. Solved by reweighting. Source: Huber 1981, Robust
Statistics, chapter 7; the loss is the pseudo-Huber (soft-L1) one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import F64, Bool

SCALE: Final = 0.12  # log error from which a row pulls less than proportionally
_MOST_ROUNDS: Final = 10_000  # about 40 on published rows
_CLOSE: Final = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posterior:
    """Values with standard deviations, and for each the share that data decide: 1 - (sd / prior sd)^2."""

    values: F64
    sd: F64
    share: F64


def most_probable(errors: F64, slopes: F64, at: F64, prior_sd: F64, weights: F64, rows: Bool) -> Posterior:
    """Values that minimise the loss on the given rows, when errors change by `slopes` around `at`.

    Shapes: errors and weights (rows,), slopes (rows, parameters), at and prior_sd (parameters,).
    """
    slope, constant = slopes[rows], errors[rows] - slopes[rows] @ at
    values: F64 = at
    inverse: F64 = np.diag(prior_sd**2)
    for _ in range(_MOST_ROUNDS):
        pull = weights[rows] / (SCALE**2 * np.sqrt(1.0 + ((constant + slope @ values) / SCALE) ** 2))
        inverse = np.asarray(
            np.linalg.inv(slope.T @ (slope * pull[:, None]) + np.diag(prior_sd**-2)), np.float64
        )
        before, values = values, np.asarray(-inverse @ (slope.T @ (pull * constant)), np.float64)
        if np.abs(values - before).max(initial=0.0) < _CLOSE:
            break
    sd = np.sqrt(np.diag(inverse))
    return Posterior(values=values, sd=sd, share=1.0 - (sd / prior_sd) ** 2)
