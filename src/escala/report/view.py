"""Builds the answer to `plan` from a search: the ranking, the techniques, the remedies, the curve."""

from dataclasses import dataclass, field
from math import isfinite

from escala import __version__
from escala.model.flops import convention
from escala.model.problem import Problem
from escala.planning.advice import remedies
from escala.planning.defaults import Assumed
from escala.planning.scaling import WORTH, Curve, ScalePoint
from escala.planning.search import TOLERANCE, Found
from escala.planning.simplicity import describe
from escala.planning.sites import between
from escala.planning.space import SpaceLimits
from escala.planning.ties import tied_with_first
from escala.planning.why import FamilyAnswer, families
from escala.report import reasons
from escala.report.answer import (
    PLAN_SCHEMA,
    Answer,
    FamilyView,
    PlanView,
    RemedyView,
    ScalePointView,
    ScalingView,
    SitesView,
)
from escala.report.lengths_view import lengths_view
from escala.report.plan_view import plan_view
from escala.report.planwords import plan_keys, text_of
from escala.report.problem_view import (
    calibration_view,
    cluster_view,
    doubt,
    energy_unknown,
    workload_view,
)
from escala.report.reasoning import Reasons
from escala.report.reasoning_view import Told, curve_reading
from escala.report.reasoning_view import reasons as reasons_of
from escala.report.rules import broken_fix
from escala.report.shared import AssumptionView, terms, tokens_per_step
from escala.units import HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question with its answer: what every view is built from."""

    problem: Problem
    limits: SpaceLimits
    found: Found
    assumed: tuple[Assumed, ...]
    curve: Curve | None = None
    told: Told = field(default_factory=Told)


def answer(asked: Asked) -> Answer:
    """The whole document of `escala plan`."""
    found, problem = asked.found, asked.problem
    return Answer(
        schema=PLAN_SCHEMA,
        escala=__version__,
        workload=workload_view(problem, asked.limits.precision),
        cluster=cluster_view(problem),
        engine=problem.engine.name,
        engine_title=problem.engine.title,
        objective=str(found.objective),
        tolerance=found.tolerance,
        tie_share=TOLERANCE,
        fixed=_fixed(asked.limits),
        considered=found.considered,
        estimated=found.estimated,
        feasible=found.feasible,
        search_s=found.search_s,
        rejected=found.rejected,
        plans=plan_views(asked),
        recommended=found.recommended,
        is_risky=found.is_risky,
        families=family_views(asked),
        assumptions=tuple(_assumption(each) for each in asked.assumed),
        energy_unknown=energy_unknown(problem),
        broken_fix=() if found.considered else broken_fix(problem, asked.limits),
        mfu_convention=convention(problem.accelerator, asked.limits.precision),
        calibration=calibration_view(problem),
        doubt=doubt(problem, found.ranking, found.recommended),
        advice=remedy_views(asked),
        scaling=None if asked.curve is None else scaling_view(problem, asked.curve, asked.told.keep),
        sites=sites_view(asked),
        reasons=chosen_reasons(asked),
        lengths=lengths_view(problem, found.ranking, found.recommended),
    )


def sites_view(asked: Asked) -> SitesView | None:
    """What local steps would gain over the link between sites; None where there are none."""
    found = between(asked.problem, asked.limits, asked.found)
    if found is None:
        return None
    is_finite = isfinite(found.crossover_bytes_per_s)
    return SitesView(
        link=found.link.name,
        bytes_per_s=found.bytes_per_s,
        latency_s=found.link.latency_s,
        plain_step_s=found.plain_step_s,
        local_plan=plan_keys(found.local),
        local_plan_title=describe(found.local),
        local_steps=found.local.local_steps,
        local_step_s=found.local_step_s,
        crossover_bytes_per_s=found.crossover_bytes_per_s if is_finite else None,
        pays_always=not is_finite,
        least_local_steps=found.least_steps,
    )


def chosen_reasons(asked: Asked) -> Reasons | None:
    """The reasons behind the recommended plan."""
    ranking, chosen = asked.found.ranking, asked.found.recommended
    if ranking is None or chosen is None:
        return None
    return reasons_of(asked.problem, ranking.plans[chosen], asked.limits, asked.told)


def _fixed(limits: SpaceLimits) -> dict[str, tuple[str, ...]]:
    return {name: tuple(text_of(name, each) for each in values) for name, values in limits.fixed.items()}


def plan_views(asked: Asked) -> tuple[PlanView, ...]:
    """The ranking, each plan compared with the recommended one."""
    result, chosen = asked.found.ranking, asked.found.recommended
    if result is None or chosen is None:
        return ()
    points = [int(each) for each in asked.found.complexity]
    tied = [bool(each) for each in tied_with_first(asked.found, result)]
    return tuple(
        plan_view(
            asked.problem, result, row, rank=row + 1, points=points, is_tied=tied[row], why=_why(asked, row)
        )
        for row in range(len(result))
    )


def _why(asked: Asked, row: int) -> str:
    result, chosen = asked.found.ranking, asked.found.recommended
    assert result is not None
    assert chosen is not None
    if row == chosen:
        return "recommended"
    return reasons.against(result.plans[row], terms(result, row), result.plans[chosen], terms(result, chosen))


def family_views(asked: Asked) -> tuple[FamilyView, ...]:
    """Every technique beside the recommended plan."""
    return tuple(_family(each) for each in families(asked.problem, asked.limits, asked.found))


def _family(given: FamilyAnswer) -> FamilyView:
    return FamilyView(
        name=given.family,
        title=given.title,
        plan=None if given.plan is None else plan_keys(given.plan),
        plan_title=None if given.plan is None else describe(given.plan),
        step_s=given.step_s,
        step_ratio=given.step_ratio,
        short_bytes=given.short_bytes,
        why=given.why,
    )


def remedy_views(asked: Asked) -> tuple[RemedyView, ...]:
    """The smallest changes after which something fits; nothing when a plan fits already."""
    if asked.found.ranking is not None:
        return ()
    return tuple(
        RemedyView(
            title=each.title, plan=plan_keys(each.plan), plan_title=describe(each.plan), step_s=each.step_s
        )
        for each in remedies(asked.problem, asked.limits)
    )


def scaling_view(problem: Problem, curve: Curve, keep: float | None = None) -> ScalingView:
    """The strong-scaling curve with rates, device-hours and what theory reads in it."""
    points = tuple(_point(problem, each) for each in curve.points)
    return ScalingView(
        fewest=curve.fewest,
        worth=curve.worth,
        worth_share=WORTH,
        points=points,
        theory=curve_reading(problem, curve, keep),
    )


def _point(problem: Problem, given: ScalePoint) -> ScalePointView:
    tokens, total = tokens_per_step(problem), problem.workload.total_tokens
    hours = None if total is None else total / tokens * given.step_s * given.devices / HOUR_S
    return ScalePointView(
        devices=given.devices,
        plan_title=describe(given.plan),
        step_s=given.step_s,
        interval_ratio=given.interval_ratio,
        tokens_per_s=tokens / given.step_s,
        mfu=given.mfu,
        efficiency=given.efficiency,
        is_risky=given.is_risky,
        device_hours=hours,
        energy_j_per_step=given.energy_j,
        cost=given.cost_usd,
    )


def _assumption(each: Assumed) -> AssumptionView:
    return AssumptionView(name=each.name, value=each.value, reason=each.reason, option=each.option)
