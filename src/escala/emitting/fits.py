"""Which targets can express a plan, and the nearest plan that each can. Knows no target.

Nearest is, of the plans that a target can express and that are within 5 % of the fastest of them, the one
that changes the fewest fields. Both the plan and the nearest are predicted for the engine of the plan.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

from escala.emitting.abilities import Narrowed, keeping, narrowed
from escala.foreign.orders import Order, Target, lacking
from escala.model.estimate import time_of
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import rejects
from escala.planning.checks import refuse_unplanned
from escala.planning.search import TOLERANCE, search
from escala.planning.simplicity import moved

MOST: Final = 30
"""Layouts of each search that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A plan that a target can express; `ratio` is its step time over that of the plan.

    It is None where that of the plan is not predicted.
    """

    plan: Plan
    step_s: float
    ratio: float | None
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a target lacks for an order, nothing where it can express all, and then its nearest plan."""

    target: Target
    reasons: tuple[str, ...]
    nearest: Nearest | None = None

    @property
    def is_expressed(self) -> bool:
        """Whether the target can express the plan."""
        return not self.reasons


Timed = list[tuple[Plan, float]]


def fits(targets: Iterable[Target], order: Order) -> list[Fit]:
    """What each target makes of an order: who expresses it first, then by how little the nearest loses."""
    known: dict[Narrowed, Timed] = {}
    step_s = step_of(order.problem, order.plan)
    found = [_fit(target, order, step_s, known) for target in targets]
    return sorted(found, key=lambda each: _rank(each, order))


def fit(target: Target, order: Order) -> Fit:
    """What one target makes of an order."""
    return fits([target], order)[0]


def step_of(problem: Problem, plan: Plan) -> float | None:
    """Step time of a plan; None where the plan breaks a rule, so that none is predicted."""
    plans = Plans.of(plan)
    return None if rejects(problem, plans)[0] else float(time_of(problem, plans).step_s[0])


def _rank(each: Fit, order: Order) -> tuple[bool, bool, bool, float, int, str]:
    """Expressed, then by seconds; equals by the engine of the plan, schedulers last, by reasons, by name."""
    target, cannot = each.target, not each.is_expressed
    seconds = each.nearest.step_s if each.nearest else float("inf") if cannot else 0.0
    other = target.engine != order.problem.engine.name and not cannot
    return cannot, other, target.wraps and not cannot, seconds, len(each.reasons), target.name


def _fit(target: Target, order: Order, step_s: float | None, known: dict[Narrowed, Timed]) -> Fit:
    reasons = tuple(lacking(target, order))
    if not reasons:
        return Fit(target=target, reasons=())
    return Fit(target=target, reasons=reasons, nearest=_nearest(target, order, step_s, known))


def _nearest(
    target: Target, order: Order, step_s: float | None, known: dict[Narrowed, Timed]
) -> Nearest | None:
    able_to = list(_candidates(target, order, known))
    if not able_to:
        return None
    least_s = min(seconds for _, seconds in able_to)
    near = [(plan, seconds) for plan, seconds in able_to if seconds <= least_s * (1.0 + TOLERANCE)]
    plan, seconds = min(near, key=lambda each: (len(changes(order.plan, each[0])), each[1]))
    ratio = None if step_s is None else seconds / step_s
    return Nearest(plan=plan, step_s=seconds, ratio=ratio, changed=changes(order.plan, plan))


def _candidates(target: Target, order: Order, known: dict[Narrowed, Timed]) -> Iterator[tuple[Plan, float]]:
    """Good plans that the target can express: those that keep most of the order's, and the best of all."""
    work, able = order.problem.workload, target.abilities
    space = narrowed(able, order)
    if space is None or work.method not in able.methods or (work.network.is_image and not able.images):
        return
    for part in (keeping(space, able, order.plan), space):
        if part not in known:
            known[part] = list(_searched(part, order.problem, may_offload=bool(moved(order.plan))))
        for found, seconds in known[part]:
            plan = _dressed(found, target, order.plan)
            if not lacking(target, replace(order, plan=plan)):
                yield plan, seconds


def _searched(part: Narrowed, problem: Problem, *, may_offload: bool) -> Iterator[tuple[Plan, float]]:
    """The best plans of each slice with their step times; offloaded where the plan to be written is."""
    narrower = part.problem(problem)
    refuse_unplanned(narrower, part.precision)
    for limits in part.limits():
        ranking = search(narrower, limits, top=MOST, may_offload=may_offload).ranking
        if ranking is not None:
            yield from ((ranking.plans[row], float(ranking.step_s[row])) for row in range(len(ranking)))


def _dressed(plan: Plan, target: Target, wanted: Plan) -> Plan:
    """The plan with the dispatcher of the wanted one, or the target's own: the search does not choose it."""
    able = target.abilities.dispatchers
    if plan.ep == 1:
        return plan
    return replace(plan, dispatcher=wanted.dispatcher if wanted.dispatcher in able else able[0])


def changes(plan: Plan, other: Plan) -> tuple[str, ...]:
    """Names of the fields in which two plans differ."""
    return tuple(each.name for each in fields(Plan) if getattr(plan, each.name) != getattr(other, each.name))
