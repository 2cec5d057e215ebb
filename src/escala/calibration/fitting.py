"""The fit from start to end: values on all sources, errors with each source left out, widths of intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.calibration.free import Free
from escala.calibration.posterior import Posterior
from escala.calibration.reading import Reading
from escala.calibration.sample import Sample
from escala.calibration.solving import solve
from escala.calibration.widths import ratio_that_covers
from escala.catalog.fitted import CALIBRATED_ROWS
from escala.model.columns import F64
from escala.model.interval import Regime

FEWEST_ROWS: Final = 20  # behind an interval of its own
# Errors inside a fit are smaller than those of new rows of the same stack. Source: step-time study, 4.2
INSIDE_RATIO: Final = 1.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """The result: free numbers with their posterior, log errors of every row in the fit and left out."""

    sample: Sample
    free: tuple[Free, ...]
    posterior: Posterior
    inside: F64
    outside: F64


def fit(readings: Sequence[Reading], free: Sequence[Free], progress: Callable[[str, float], None]) -> Fit:
    """Most probable values by repeated linearisation, then every source group left out in turn."""
    sample = Sample.of(readings)
    used = tuple(f for f in free if any(f.touches(problem) for problem in sample.problems))
    found = solve(sample, used, np.array([f.sd for f in used]), progress)
    outside, groups = np.empty(len(sample)), sample.groups
    for group in sorted(set(groups.tolist())):
        own = groups == group
        outside[own] = found.without(own).errors[own]
    return Fit(sample=sample, free=used, posterior=found.posterior, inside=found.errors, outside=outside)


def calibrated(sample: Sample, names: Sequence[str]) -> tuple[str, ...]:
    """Names that stand on enough rows of the sample."""
    return tuple(sorted({name for name in names if names.count(name) >= CALIBRATED_ROWS}))


def interval_ratios(result: Fit) -> dict[str, float]:
    """Factors of the 80 % intervals by regime: for new engines left-out errors, for known ones inside errors.

    A regime with few rows takes those of all rows of its distance. Inside errors are widened by 1.25.
    """
    readings = result.sample.readings
    regimes = np.array([int(r.regime) for r in readings])
    ratios = {}
    for kind in Regime:
        own = regimes == kind
        rows = own if own.sum() >= FEWEST_ROWS else np.ones(len(readings), np.bool_)
        chosen = [readings[i] for i in np.flatnonzero(rows)]
        new = ratio_that_covers(result.outside[rows], chosen)
        inside = ratio_that_covers(result.inside[rows] * INSIDE_RATIO, chosen)
        name = kind.name.lower()
        ratios[f"interval_{name}_ratio"] = new
        ratios[f"interval_{name}_known_ratio"] = min(inside, new)
    return ratios
