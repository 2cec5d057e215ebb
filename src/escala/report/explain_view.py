"""One plan explained, as data: terms, waterfall, memory, why not the others, what would change it."""

from dataclasses import dataclass
from typing import Final

from escala import __version__
from escala.model import explain
from escala.model.estimate import estimate
from escala.model.explain import Explanation
from escala.model.flops import convention, reference_peak_flop_per_s
from escala.model.kinds import LayerKind, layer_kinds_of
from escala.model.memory import Verdict
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import Reject
from escala.model.rejects import describe as describe_rejects
from escala.planning.search import TOLERANCE, Found, search
from escala.planning.sensitivity import Change, sensitivity
from escala.planning.simplicity import describe
from escala.planning.ties import tied_with_first
from escala.report.answer import CalibrationView, ClusterView, FamilyView, PlanView, WorkloadView
from escala.report.load_view import ExpertLoadView, expert_load_view
from escala.report.plan_view import plan_view
from escala.report.planfile import PlanFile
from escala.report.problem_view import calibration_view, cluster_view, doubt, workload_view
from escala.report.reasoning import Reasons
from escala.report.reasoning_view import Told, reasons
from escala.report.reasons import against
from escala.report.rules import repairs
from escala.report.shared import terms
from escala.report.trace_view import TraceView
from escala.report.view import Asked, family_views

EXPLAIN_SCHEMA: Final = "escala/explain@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TermView:
    """One term of the step time with its formula in words and where it comes from."""

    name: str
    title: str
    value_s: float
    share: float
    formula: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FallView:
    """One step from peak to achieved; `share` of the peak is lost, or won where it is negative."""

    title: str
    share: float
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldView:
    """One kind of memory on the rank that needs most, and who shares it."""

    name: str
    title: str
    held_bytes: float
    sharing: str
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeView:
    """One change with the step and the memory that follow, over today's; or why it is impossible."""

    title: str
    kind: str
    step_ratio: float | None
    memory_ratio: float | None
    impossible: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The document of `escala explain --json`.

    `broken_rules` says why the plan cannot be run, if so, `repairs` what to change. Unless it only does not
    fit, nothing of such a plan is explained, and its numbers mean nothing.
    """

    schema: str
    escala: str
    workload: WorkloadView
    cluster: ClusterView
    engine: str
    plan: PlanView
    broken_rules: tuple[str, ...]
    repairs: tuple[str, ...]
    recommended_title: str | None
    peak_flop_per_s: float
    achieved_flop_per_s: float
    waterfall: tuple[FallView, ...]
    terms: tuple[TermView, ...]
    memory: tuple[HeldView, ...]
    memory_phases_bytes: dict[str, float]
    layer_kinds: tuple[LayerKind, ...]
    families: tuple[FamilyView, ...]
    sensitivity: tuple[ChangeView, ...]
    mfu_convention: str
    tie_share: float
    calibration: CalibrationView
    doubt: str
    expert_load: ExpertLoadView | None = None
    reasons: Reasons | None = None
    trace: TraceView | None = None


def explained(file: PlanFile, row: int) -> Explained:
    """Everything about one plan of a file."""
    problem, plan = file.problem, file.plans[row]
    result = estimate(problem, Plans.of(plan))
    found = search(
        problem, file.searched.limits, objective=file.searched.objective, tolerance=file.searched.tolerance
    )
    asked = Asked(problem=problem, limits=file.searched.limits, found=found, assumed=())
    bits = int(result.reject[0])
    broken = bits & ~int(Reject.MEMORY)  # what only does not fit can be explained all the same
    story = None if broken else explain.explain(problem, result)
    return Explained(
        schema=EXPLAIN_SCHEMA,
        escala=__version__,
        workload=workload_view(problem, plan.precision),
        cluster=cluster_view(problem),
        engine=problem.engine.name,
        plan=plan_view(
            problem,
            result,
            0,
            rank=row + 1,
            is_tied=bool(tied_with_first(found, result)[0]),
            why=_why(problem, plan, found),
        ),
        broken_rules=tuple(describe_rejects(broken or bits)),
        repairs=repairs(problem, plan, broken),
        recommended_title=_recommended_title(found),
        peak_flop_per_s=reference_peak_flop_per_s(problem),
        achieved_flop_per_s=story.achieved_flop_per_s if story else 0.0,
        waterfall=_falls(story) if story else (),
        terms=_terms(story) if story else (),
        memory=_held(story) if story else (),
        memory_phases_bytes=_phases(story) if story else {},
        layer_kinds=layer_kinds_of(problem, plan) if story else (),
        families=family_views(asked),
        sensitivity=tuple(_change(each) for each in sensitivity(problem, plan)) if story else (),
        mfu_convention=convention(problem.accelerator, plan.precision),
        tie_share=TOLERANCE,
        calibration=calibration_view(problem),
        doubt=doubt(problem, result, 0),
        expert_load=expert_load_view(problem, plan) if story else None,
        reasons=reasons(problem, plan, file.searched.limits, Told()) if story else None,
    )


def _recommended_title(found: Found) -> str | None:
    if found.ranking is None or found.recommended is None:
        return None
    return describe(found.ranking.plans[found.recommended])


def _why(problem: Problem, plan: Plan, found: Found) -> str:
    """The plan beside the one that the same search recommends."""
    if found.ranking is None or found.recommended is None:
        return "nothing fits"
    best, best_terms = found.ranking.plans[found.recommended], terms(found.ranking, found.recommended)
    if plan == best:
        return "recommended"
    result = estimate(problem, Plans.of(plan))
    if result.memory.verdict[0] == Verdict.DOES_NOT_FIT:
        return "does not fit"
    return against(plan, terms(result, 0), best, best_terms)


def _falls(story: Explanation) -> tuple[FallView, ...]:
    return tuple(FallView(title=each.title, share=each.share, formula=each.why) for each in story.waterfall)


def _phases(story: Explanation) -> dict[str, float]:
    return {name.removesuffix("_bytes"): held for name, held in story.phase_bytes.items()}


def _terms(story: Explanation) -> tuple[TermView, ...]:
    return tuple(
        TermView(
            name=each.name,
            title=each.title,
            value_s=each.seconds_s,
            share=each.share,
            formula=each.formula,
            source=each.source,
        )
        for each in story.terms
    )


def _held(story: Explanation) -> tuple[HeldView, ...]:
    return tuple(
        HeldView(
            name=each.name.removesuffix("_bytes"),
            title=each.title,
            held_bytes=each.held_bytes,
            sharing=each.sharing,
            formula=each.formula,
        )
        for each in story.ledger
    )


def _change(each: Change) -> ChangeView:
    return ChangeView(
        title=each.title,
        kind=each.kind,
        step_ratio=each.step_ratio,
        memory_ratio=each.need_ratio,
        impossible=each.impossible,
    )
