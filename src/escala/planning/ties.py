"""Plans that predictions cannot order: within `TOLERANCE` of the first in the objective. Prices nothing."""

import numpy as np

from escala.model.columns import F64, Bool
from escala.model.estimate import Estimate
from escala.planning.search import TOLERANCE, Found, Objective


def tied_with_first(found: Found, result: Estimate) -> Bool:
    """Plans other than the first of the ranking that can be run and tie with it. Shape (n,)."""
    if found.ranking is None:
        return np.zeros(len(result), np.bool_)
    first = found.ranking.plans[0]
    others = np.array([result.plans[row] != first for row in range(len(result))], np.bool_)
    near = ties(objective(found, result), objective(found, found.ranking)[0])
    return np.asarray(others & near & (result.reject == 0), np.bool_)


def ties(values: F64, first: float) -> Bool:
    """The larger of two values <= (1 + `TOLERANCE`) * the smaller. Shape (n,)."""
    return np.asarray(np.maximum(values, first) <= np.minimum(values, first) * (1.0 + TOLERANCE))


def objective(found: Found, result: Estimate) -> F64:
    """What the search minimised: seconds, or joules; money on given devices goes with the seconds."""
    energy_j = result.footprint.energy_j
    return energy_j if found.objective is Objective.ENERGY and energy_j is not None else result.step_s
