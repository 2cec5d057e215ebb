"""One row of an estimate as data: rates, totals, intervals. Every derived number of a plan is made here."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from escala.model.estimate import Estimate
from escala.model.memory import Memory, Verdict
from escala.model.problem import Problem
from escala.planning.simplicity import describe
from escala.report.answer import Interval, MemoryView, PlanView, RunView
from escala.report.planwords import plan_keys
from escala.report.problem_view import times, tokens_per_step
from escala.units import HOUR_S

VERDICTS: Final = {Verdict.FITS: "fits", Verdict.RISKY: "risky", Verdict.DOES_NOT_FIT: "does not fit"}


def plan_view(
    problem: Problem, result: Estimate, row: int, *, rank: int, points: Sequence[int] = (), why: str = ""
) -> PlanView:
    """One row of an estimate with its derived numbers."""
    plan, step_s = result.plans[row], float(result.step_s[row])
    step = times(step_s, float(result.interval_ratio[row]))
    foot = result.footprint
    own = points[row] if points else 0
    return PlanView(
        rank=rank,
        title=describe(plan),
        plan=plan_keys(plan),
        step_s=step,
        tokens_per_s_per_device=_rate(problem, step),
        mfu=float(result.mfu[row]),
        hfu=float(result.hfu[row]),
        memory_bytes=memory_view(problem, result.memory, row),
        host_memory_bytes=float(result.memory.host_bytes[row]),
        terms_s=terms(result, row),
        energy_j_per_step=_row(foot.energy_j, row),
        cost=_row(foot.cost_usd, row),
        co2e_kg=_row(foot.carbon_kg, row),
        run=_run(problem, result, row),
        simplicity_points=own,
        simplicity_rank=1 + sum(other < own for other in points),
        verdict=VERDICTS[Verdict(int(result.memory.verdict[row]))],
        why=why,
    )


def terms(result: Estimate, row: int) -> dict[str, float]:
    """Seconds of one plan's step by term."""
    return {field.name: float(getattr(result.time, field.name)[row]) for field in fields(result.time)}


def _rate(problem: Problem, step: Interval) -> Interval:
    share = tokens_per_step(problem) / problem.cluster.devices
    return Interval(value=share / step.value, low=share / step.high, high=share / step.low)


def memory_view(problem: Problem, memory: Memory, row: int) -> MemoryView:
    """Needed memory with interval, capacity and its parts."""
    needed, known = float(memory.needed_bytes[row]), problem.assumptions
    return MemoryView(
        value=needed,
        low=needed * known.memory_interval_low,
        high=needed * known.memory_interval_high,
        capacity=problem.accelerator.memory_bytes,
        reserved=float(memory.reserved_bytes[row]),
        by_kind=_parts(memory.kinds, row),
        by_phase=_parts(memory.phases, row),
    )


def _parts(columns: Any, row: int) -> dict[str, float]:
    names = [field.name for field in fields(columns)]
    return {name.removesuffix("_bytes"): float(getattr(columns, name)[row]) for name in names}


def _row(column: Any, row: int) -> float | None:
    return None if column is None else float(column[row])


def _run(problem: Problem, result: Estimate, row: int) -> RunView | None:
    """The whole run: steps * what one step takes."""
    total = problem.workload.total_tokens
    if total is None:
        return None
    steps, foot = total / tokens_per_step(problem), result.footprint
    ratio = float(result.interval_ratio[row])

    def of(one: float | None) -> Interval | None:
        return None if one is None else times(steps * one, ratio)

    duration = times(steps * float(result.step_s[row]), ratio)
    hours = duration.value * problem.cluster.devices / HOUR_S
    return RunView(
        tokens=total,
        steps=steps,
        duration_s=duration,
        device_hours=times(hours, ratio),
        energy_j=of(_row(foot.energy_j, row)),
        cost_usd=of(_row(foot.cost_usd, row)),
        co2e_kg=of(_row(foot.carbon_kg, row)),
    )
