"""Reasons behind a plan from the model's functions: every number is theirs, here they only change shape."""

from dataclasses import dataclass

import numpy as np

from escala.catalog.batches import critical_batch, overhead, why_unknown
from escala.model.columns import F64
from escala.model.estimate import estimate
from escala.model.explain import TERMS
from escala.model.feeding import fed_s, with_loader_s
from escala.model.floors import Floor, floors
from escala.model.granularity import granularity
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.targets import Critical, excess_share, learning_rate_ratio, learning_rate_rule
from escala.planning.isoefficiency import Isoefficiency
from escala.planning.resizing import Case
from escala.planning.scaling import WORTH, Curve, ScalePoint, on
from escala.planning.simplicity import describe
from escala.planning.space import SpaceLimits
from escala.planning.strong import Law, Reading, Stop, reading, stretched
from escala.planning.target import ToTarget, to_target
from escala.planning.tuning import Setting, settings
from escala.report.reasoning import (
    BatchView,
    FloorView,
    GranularityView,
    GrowthView,
    KeptView,
    LoaderView,
    Range,
    Reasons,
    SettingView,
    SizeView,
    StopView,
    TargetPointView,
    TargetView,
)
from escala.units import HOUR_S

FLOORS = {Floor.WORK: "work", Floor.CHAIN: "longest chain", Floor.LINK: "traffic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a person adds to a question: efficiency to keep, critical batch, loader, batches to compare."""

    keep: float | None = None
    critical: Critical | None = None
    loader_samples_per_s: float | None = None
    targets: tuple[ToTarget, ...] = ()
    reference_batch: int | None = None
    reference_tokens: float | None = None
    kept: Isoefficiency | None = None


def reasons(problem: Problem, plan: Plan, limits: SpaceLimits, told: Told) -> Reasons:
    """Everything behind one plan."""
    growth = stretched(problem, plan, keep=told.keep or WORTH)
    return Reasons(
        settings=tuple(_setting(each) for each in settings(problem, plan, limits)),
        growth=growth_view(growth, is_same_layout=True),
        floor=_floor(problem, plan),
        granularity=_granularity(problem, plan),
        batch=batch_view(problem, plan, told.critical),
        loader=None
        if told.loader_samples_per_s is None
        else _loader(problem, plan, told.loader_samples_per_s),
        target=_target(problem, told) if told.targets else None,
        kept=None if told.kept is None else _kept(problem, told.kept),
    )


def curve_reading(problem: Problem, curve: Curve, keep: float | None) -> GrowthView:
    """The curve of best plans in numbers of theory."""
    read = reading(
        curve.points, lambda each: Case(problem=on(problem, each.devices), plan=each.plan), keep or WORTH
    )
    return growth_view(read, is_same_layout=False)


def _setting(given: Setting) -> SettingView:
    return SettingView(
        name=given.name,
        value=given.value,
        other=given.other,
        is_used=given.is_used,
        saved_s=given.saved_s,
        share=given.share,
        memory_ratio=given.memory_ratio,
    )


def growth_view(given: Reading, *, is_same_layout: bool) -> GrowthView:
    """A reading as data."""
    pairs = zip(given.points, given.laws, strict=True)
    return GrowthView(
        is_same_layout=is_same_layout,
        keep=given.keep,
        sizes=tuple(_size(each, law) for each, law in pairs),
        trend=given.trend,
        stop=None if given.stop is None else _stop(given.stop),
        least_energy_devices=given.least_energy,
        least_cost_devices=given.least_cost,
        ends=given.ends,
    )


def _size(given: ScalePoint, law: Law) -> SizeView:
    saved_j = law.j_per_saved_s
    return SizeView(
        devices=given.devices,
        step_s=given.step_s,
        interval_ratio=given.interval_ratio,
        speedup=law.speedup,
        efficiency=given.efficiency,
        is_risky=given.is_risky,
        serial_share=law.serial_share,
        amdahl=law.amdahl,
        gustafson=law.gustafson,
        energy_j_per_step=given.energy_j,
        cost=given.cost_usd,
        energy_j_per_saved_hour=None if saved_j is None else saved_j * HOUR_S,
        cost_per_saved_hour=law.usd_per_saved_hour,
    )


def _stop(given: Stop) -> StopView:
    return StopView(
        devices=given.devices,
        efficiency=given.efficiency,
        term=given.term,
        term_title=TERMS[given.term][0],
        term_share=given.term_share,
        link=given.link,
        link_ratio=given.link_ratio,
        link_efficiency=given.link_efficiency,
    )


def _floor(problem: Problem, plan: Plan) -> FloorView:
    plans = Plans.of(plan)
    found, step_s = floors(problem, plans), float(estimate(problem, plans).step_s[0])
    return FloorView(
        work_s=float(found.work_s[0]),
        chain_s=float(found.chain_s[0]),
        link_s=float(found.link_s[0]),
        floor_s=float(found.floor_s[0]),
        highest=FLOORS[Floor(int(found.highest[0]))],
        gap=float(found.gap(np.array([step_s]))[0]),
    )


def _granularity(problem: Problem, plan: Plan) -> GranularityView:
    found = granularity(problem, Plans.of(plan))
    return GranularityView(
        bucket=_known(found.bucket_ratio), layer=_known(found.layer_ratio), stage=_known(found.stage_ratio)
    )


def _known(column: F64) -> float | None:
    return None if np.isnan(column[0]) else float(column[0])


def batch_view(problem: Problem, plan: Plan, measured: Critical | None) -> BatchView:
    """The batch of a question beside the critical one: measured, else the prior, else why there is none."""
    work = problem.workload
    critical, limit = measured or critical_batch(work), overhead(work)
    more = None if critical is None else _more(critical, work.global_batch)
    return BatchView(
        global_batch=work.global_batch,
        critical=None
        if critical is None
        else Range(value=critical.batch, low=critical.low, high=critical.high),
        source="" if critical is None else critical.source,
        is_measured=critical is not None and critical.is_measured,
        unknown=why_unknown(work) if critical is None else "",
        more_samples=more,
        to_target=None if critical is None else _small_batch_target(problem, plan, critical),
        overhead=limit,
        buys_speed=_buys(more, limit),
        learning_rate_rule=str(learning_rate_rule(work.optimizer)),
    )


def _small_batch_target(problem: Problem, plan: Plan, critical: Critical) -> TargetPointView | None:
    """What the plan needs to the target that the tokens of the question reach in small batches."""
    if problem.workload.total_tokens is None:
        return None
    found = to_target(problem, estimate(problem, Plans.of(plan)), critical)
    return _target_point(found, 1.0)


def _more(critical: Critical, batch: int) -> Range:
    low, high = critical.ends
    value, most, least = (excess_share(each, batch) for each in (critical.batch, low, high))
    return Range(value=value, low=least, high=None if np.isinf(most) else most)


def _buys(more: Range | None, limit: float) -> str:
    if more is None or (more.high is not None and more.high <= limit):
        return "no"
    return "yes" if more.value > limit else "perhaps"


def _loader(problem: Problem, plan: Plan, samples_per_s: float) -> LoaderView:
    batch, nodes = problem.workload.global_batch, problem.cluster.nodes
    step_s = estimate(problem, Plans.of(plan)).step_s
    fed = fed_s(batch, samples_per_s, nodes)
    both_s = float(with_loader_s(step_s, fed)[0])
    return LoaderView(
        fed_samples_per_s=batch / float(fed),
        taken_samples_per_s=batch / float(step_s[0]),
        step_s=both_s,
        is_bound=both_s > float(step_s[0]),
    )


def _target(problem: Problem, told: Told) -> TargetView:
    assert told.reference_batch is not None
    assert told.reference_tokens is not None
    rule = learning_rate_rule(problem.workload.optimizer)
    return TargetView(
        reference_batch=told.reference_batch,
        total_tokens=told.reference_tokens,
        chosen_batch=problem.workload.global_batch,
        points=tuple(
            _target_point(each, learning_rate_ratio(rule, each.batch / told.reference_batch))
            for each in told.targets
        ),
    )


def _target_point(given: ToTarget, learning_rate: float) -> TargetPointView:
    return TargetPointView(
        global_batch=given.batch,
        plan_title=describe(given.plan),
        step_s=given.step_s,
        samples=_ranged(given.samples),
        steps=given.steps,
        duration_s=_ranged(given.duration_s),
        energy_j=given.energy_j,
        cost_usd=given.cost_usd,
        learning_rate_ratio=learning_rate,
    )


def _ranged(given: tuple[float, float, float]) -> Range:
    value, low, high = given
    return Range(value=value, low=low, high=None if np.isinf(high) else high)


def _kept(problem: Problem, given: Isoefficiency) -> KeptView:
    best = given.smallest or given.largest
    return KeptView(
        keep=given.keep,
        devices=given.devices,
        base_devices=given.base_devices,
        batch=None if given.smallest is None else given.smallest.batch,
        efficiency=best.efficiency,
        plan_title=describe(best.plan),
        largest_batch=given.largest.batch,
        today_batch=problem.workload.global_batch,
        today_efficiency=None if given.today is None else given.today.efficiency,
    )
