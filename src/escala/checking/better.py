"""The plan that the search would choose for the same job, and how much faster it is."""

from dataclasses import dataclass
from typing import Final

from escala.checking.judging import Judged, judged
from escala.errors import InvalidInput
from escala.model.memory import Verdict
from escala.model.plan import Plan, Precision
from escala.model.problem import Problem
from escala.planning.search import search
from escala.planning.space import SpaceLimits

NEAR: Final = 0.05
"""Within this share of the best there is nothing to change."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Better:
    """The recommended plan; `gain` is the step of the job over its step, less 1. `is_near` says: leave it."""

    judged: Judged
    gain: float
    is_near: bool


def recommended(problem: Problem, precision: Precision) -> Plan | None:
    """What the search recommends; None where nothing fits, or where it knows no answer."""
    try:
        found = search(problem, SpaceLimits(precision=precision), top=1)
    except InvalidInput:
        return None
    if found.ranking is None or found.recommended is None:
        return None
    return found.ranking.plans[found.recommended]


def better_plan(given: Judged) -> Better | None:
    """The simplest plan near the best that the engine can run; None where none fits or can be planned."""
    plan = recommended(given.problem, given.plan.precision)
    if plan is None:
        return None
    best = judged(given.problem, plan)
    gain = given.step_s / best.step_s - 1.0
    is_near = gain <= NEAR and given.verdict is not Verdict.DOES_NOT_FIT
    return Better(judged=best, gain=gain, is_near=is_near)
