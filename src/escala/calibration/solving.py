"""From measured times to values of free numbers: repeated linearisation, and rows left out along the slopes.

Knows neither where the rows come from nor what the numbers are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from escala.calibration.posterior import Posterior, most_probable
from escala.calibration.sample import FreeNumber, Observed, predicted, slopes
from escala.model.columns import F64, Bool

ROUNDS: Final = 4
_MOST_MOVE: Final = 0.6  # of a logarithm in one round: slopes hold nearby


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """Values that the other rows give, and the log errors of all rows under them."""

    values: F64
    errors: F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """Values with their posterior, the log errors of all rows under them, and the last slopes.

    `is_stopped` says which numbers stand at the end of their range.
    """

    posterior: Posterior
    errors: F64
    slope: F64
    prior_sd: F64
    weights: F64
    is_stopped: Bool

    def without(self, own: Bool) -> LeftOut:
        """What all rows but these give, along the slopes: linearised, the slopes are not computed anew."""
        values, slope = self.posterior.values, np.where(self.is_stopped, 0.0, self.slope)
        others = most_probable(self.errors, slope, values, self.prior_sd, self.weights, ~own)
        left = np.where(self.is_stopped, values, others.values)
        return LeftOut(values=left, errors=self.errors + slope @ (left - values))


def solve(
    sample: Observed,
    free: Sequence[FreeNumber],
    prior_sd: F64,
    progress: Callable[[str, float], None],
    ends: tuple[F64, F64] | None = None,
) -> Solved:
    """Most probable values by repeated linearisation, inside their ends; one at an end stays there."""
    every, values, found = np.ones(len(sample), np.bool_), np.zeros(len(free)), None
    low, high = ends or (np.full(len(free), -np.inf), np.full(len(free), np.inf))
    for k in range(ROUNDS):
        label = f"round {k + 1} of {ROUNDS}"
        base = predicted(sample, free, values)
        is_stopped = (values <= low) | (values >= high)
        slope = slopes(sample, free, values, base, partial(progress, label))
        open_slope = np.where(is_stopped, 0.0, slope)
        found = most_probable(
            base - sample.log_published, open_slope, values, prior_sd, sample.weights, every
        )
        moved = values + np.clip(found.values - values, -_MOST_MOVE, _MOST_MOVE)
        values = np.where(is_stopped, values, np.clip(moved, low, high))
    assert found is not None
    return Solved(
        posterior=Posterior(values=values, sd=found.sd, share=found.share),
        errors=predicted(sample, free, values) - sample.log_published,
        slope=slope,
        prior_sd=prior_sd,
        weights=sample.weights,
        is_stopped=(values <= low) | (values >= high),
    )
