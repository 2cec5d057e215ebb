"""A plan for other tools as data: who can express it, what the others lack, what was written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from escala import __version__
from escala.catalog import engine
from escala.emitting import targets
from escala.emitting.fits import Fit, Nearest, fit, fits, step_of
from escala.errors import InvalidInput
from escala.foreign.orders import Order, OutFile, Target, launch_line
from escala.model.estimate import estimate
from escala.model.memory import Verdict
from escala.model.own_numbers import without_own
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import rejects
from escala.planning.simplicity import describe
from escala.planning.space import SpaceLimits
from escala.report.emit_order import Wishes, order_of
from escala.report.planfile import PlanFile, Searched, plan_bytes
from escala.report.planwords import plan_keys
from escala.report.shared import VERDICTS, AssumptionView

EMIT_SCHEMA: Final = "escala/emit@1"
PLAN_NAME: Final = "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestView:
    """The nearest plan that a target can express; `step_ratio` is its step time over that of the plan.

    It is null where none is predicted for the plan. `changed` names the fields of the plan that differ.
    """

    title: str
    plan: dict[str, Any]
    step_s: float
    step_ratio: float | None
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """A target, and the reasons why it cannot express the plan: none where it can.

    `engine_step_s` and `engine_verdict` are of the plan, or of the nearest one, as the target's own `engine`
    runs it; null where that is not predicted.
    """

    name: str
    title: str
    version: str
    page: str
    is_expressed: bool
    reasons: tuple[str, ...]
    nearest: NearestView | None
    engine: str
    engine_step_s: float | None
    engine_verdict: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenView:
    """The files that were written, and the command that starts them, on each of `nodes` nodes."""

    target: str
    folder: str
    files: tuple[str, ...]
    launch: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitAnswer:
    """The document of `escala emit --json`; `targets` are all, best first, or the one of --to.

    `named` is the plan as the command line has it; `digest` the hash of its plan.json without the estimate.
    `in_place_of` is the title of the plan that was asked for, where the nearest one is written.
    """

    schema: str
    escala: str
    named: str
    digest: str
    title: str
    plan: dict[str, Any]
    network: str
    engine: str
    devices: int
    accelerator: str
    verdict: str | None
    model: str
    data: str
    learning_rate: float
    steps: int
    assumptions: tuple[AssumptionView, ...]
    targets: tuple[TargetView, ...]
    in_place_of: str | None = None
    written: WrittenView | None = None


def ranking(file: PlanFile, row: int, wishes: Wishes, named: str) -> EmitAnswer:
    """All targets for a plan: those that can express it, then by how little their nearest plan loses."""
    order, assumed = order_of(file, row, wishes)
    every = [each.TARGET for each in targets.writers().values()]
    return _answer(order, assumed, named, fits(every, order))


def emission(
    file: PlanFile, row: int, wishes: Wishes, named: str, *, to: str, launch: str | None, is_nearest: bool
) -> tuple[EmitAnswer, Mapping[str, OutFile]]:
    """The files of one target, or of the nearest plan that it can express; none where it can express none."""
    writer, wrapper = targets.writer_of(to), None if launch is None else targets.wrapper_of(launch)
    if wrapper is not None and writer.TARGET.wraps:
        raise InvalidInput(
            f"--to {to} writes a scheduler's file already; leave out --launch, or name a framework with --to"
        )
    order, assumed = order_of(file, row, wishes)
    found, asked = fit(writer.TARGET, order), None
    if found.nearest is not None and is_nearest:
        asked = describe(order.plan)
        file, row = _with_plan(file, found.nearest.plan), 0
        order, assumed = order_of(file, row, wishes)
        found = fit(writer.TARGET, order)
    answer = replace(_answer(order, assumed, named, [found]), in_place_of=asked)
    if found.reasons:
        return answer, {}
    files, starter = list(writer.write(order)), writer.TARGET
    if wrapper is not None:
        started, starter = replace(order, launch=launch_line(writer.TARGET, order)), wrapper.TARGET
        _refuse(starter, started)
        files += wrapper.write(started)
    files.append(OutFile(name=PLAN_NAME, text=plan_bytes(file, row).decode()))
    return replace(answer, written=_written(to, starter, files, order)), _by_name(files)


def _refuse(target: Target, order: Order) -> None:
    """A scheduler's files can start everything but what the target's own rules forbid."""
    reasons = target.also(order)
    if reasons:
        raise InvalidInput(f"{target.title} cannot start this: {'; '.join(reasons)}; leave out --launch")


def _with_plan(file: PlanFile, plan: Plan) -> PlanFile:
    """The file with another plan, as if that had been asked for."""
    searched = Searched(
        limits=SpaceLimits(precision=plan.precision),
        objective=file.searched.objective,
        tolerance=file.searched.tolerance,
    )
    return PlanFile(problem=file.problem, plans=(plan,), searched=searched)


def _answer(
    order: Order, assumed: tuple[AssumptionView, ...], named: str, found: Iterable[Fit]
) -> EmitAnswer:
    problem, plan = order.problem, order.plan
    return EmitAnswer(
        schema=EMIT_SCHEMA,
        escala=__version__,
        named=named,
        digest=order.digest,
        title=describe(plan),
        plan=plan_keys(plan),
        network=problem.workload.network.name,
        engine=problem.engine.name,
        devices=plan.devices,
        accelerator=problem.accelerator.name,
        verdict=_verdict(problem, plan),
        model=order.model,
        data=order.data,
        learning_rate=order.learning_rate,
        steps=order.steps,
        assumptions=assumed,
        targets=tuple(_target(each, order) for each in found),
    )


def _verdict(problem: Problem, plan: Plan) -> str | None:
    """Whether the plan fits; None where no memory is predicted, as with offload."""
    if rejects(problem, Plans.of(plan))[0]:
        return None
    return VERDICTS[Verdict(int(estimate(problem, Plans.of(plan)).memory.verdict[0]))]


def _target(each: Fit, order: Order) -> TargetView:
    target = each.target
    plan = each.nearest.plan if each.nearest is not None else order.plan
    problem = _as_run_by(target, order.problem)
    is_predicted = each.is_expressed or each.nearest is not None
    return TargetView(
        name=target.name,
        title=target.title,
        version=target.version,
        page=target.page,
        is_expressed=each.is_expressed,
        reasons=each.reasons,
        nearest=None if each.nearest is None else _nearest(each.nearest),
        engine=target.engine,
        engine_step_s=step_of(problem, plan) if is_predicted else None,
        engine_verdict=_verdict(problem, plan) if is_predicted else None,
    )


def _as_run_by(target: Target, problem: Problem) -> Problem:
    """The question to the software that a target's files start; own runs of another engine do not count."""
    if target.engine == problem.engine.name:
        return problem
    return replace(without_own(problem), engine=engine(target.engine), own=None)


def _nearest(each: Nearest) -> NearestView:
    return NearestView(
        title=describe(each.plan),
        plan=plan_keys(each.plan),
        step_s=each.step_s,
        step_ratio=each.ratio,
        changed=each.changed,
    )


def _by_name(files: Iterable[OutFile]) -> dict[str, OutFile]:
    found: dict[str, OutFile] = {}
    for each in files:
        assert found.get(each.name, each) == each, f"two files {each.name}"
        found[each.name] = each
    return found


def _written(to: str, starter: Target, files: Iterable[OutFile], order: Order) -> WrittenView:
    names = tuple(dict.fromkeys(each.name for each in files))
    nodes = 1 if starter.wraps else order.nodes  # a scheduler's file is handed in once
    return WrittenView(target=to, folder=to, files=names, launch=launch_line(starter, order), nodes=nodes)
