"""One row of an estimate as data: rates, totals, intervals. Every derived number of a plan is made here."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from escala.catalog.ranges import assumption_ends
from escala.model.energy import energy_factors
from escala.model.estimate import Estimate
from escala.model.memory import Memory, Verdict, needed_ends, out_of_memory_probability
from escala.model.problem import Problem
from escala.planning.simplicity import describe
from escala.report.answer import MemoryView, PlanView, RunView, StepIntervals
from escala.report.planwords import plan_keys
from escala.report.problem_view import regime_words
from escala.report.shared import VERDICTS, Interval, terms, times, tokens_per_step
from escala.units import HOUR_S


def plan_view(
    problem: Problem,
    result: Estimate,
    row: int,
    *,
    rank: int,
    points: Sequence[int] = (),
    is_tied: bool = False,
    why: str = "",
) -> PlanView:
    """One row of an estimate with its derived numbers."""
    plan, step_s = result.plans[row], float(result.step_s[row])
    step = times(step_s, float(result.interval_ratio[row]))
    foot, one = result.footprint, step_intervals(problem, result, row)
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
        host_memory_most_bytes=float(result.memory.host_most_bytes[row]),
        terms_s=terms(result, row),
        energy_j_per_step=_row(foot.energy_j, row),
        cost=_row(foot.cost_usd, row),
        co2e_kg=_row(foot.carbon_kg, row),
        intervals=one,
        interval_ratio=float(result.interval_ratio[row]),
        regime=regime_words(result, row),
        run=_run(problem, step, one),
        simplicity_points=own,
        simplicity_rank=1 + sum(other < own for other in points),
        verdict=VERDICTS[Verdict(int(result.memory.verdict[row]))],
        device_verdict=VERDICTS[Verdict(int(result.memory.device_verdict[row]))],
        host_verdict=VERDICTS[Verdict(int(result.memory.host_verdict[row]))],
        out_of_memory_probability=float(
            out_of_memory_probability(
                problem, result.memory.needed_bytes[[row]], result.memory.routing_bytes[[row]]
            )[0]
        ),
        is_tied=is_tied,
        why=why,
    )


def _rate(problem: Problem, step: Interval) -> Interval:
    share = tokens_per_step(problem) / problem.cluster.devices
    return Interval(value=share / step.value, low=share / step.high, high=share / step.low)


def memory_view(problem: Problem, memory: Memory, row: int) -> MemoryView:
    """Needed memory with interval, capacity and its parts."""
    low, high = needed_ends(problem, memory.needed_bytes[[row]], memory.routing_bytes[[row]])
    return MemoryView(
        value=float(memory.needed_bytes[row]),
        low=float(low[0]),
        high=float(high[0]),
        routing=float(memory.routing_bytes[row]),
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


def step_intervals(problem: Problem, result: Estimate, row: int) -> StepIntervals:
    """Utilisation and money go with the step time, energy and carbon with time and power shares."""
    foot, ratio = result.footprint, float(result.interval_ratio[row])
    cost, low_high = _row(foot.cost_usd, row), _energy_factors(problem, result, row)
    return StepIntervals(
        mfu=times(float(result.mfu[row]), ratio),
        hfu=times(float(result.hfu[row]), ratio),
        energy_j_per_step=_between(_row(foot.energy_j, row), *low_high),
        cost=None if cost is None else times(cost, ratio),
        co2e_kg=_between(_row(foot.carbon_kg, row), *low_high),
    )


def _energy_factors(problem: Problem, result: Estimate, row: int) -> tuple[float, float]:
    low, high = energy_factors(problem, result.time, result.interval_ratio, assumption_ends())
    return float(low[row]), float(high[row])


def _between(value: float | None, low: float, high: float) -> Interval | None:
    return None if value is None else Interval(value=value, low=value * low, high=value * high)


def _run(problem: Problem, step: Interval, one: StepIntervals) -> RunView | None:
    """The whole run: steps * what one step takes."""
    total = problem.workload.total_tokens
    if total is None:
        return None
    steps = total / tokens_per_step(problem)
    return RunView(
        tokens=total,
        steps=steps,
        duration_s=_so_often(steps, step),
        device_hours=_so_often(steps * problem.cluster.devices / HOUR_S, step),
        energy_j=one.energy_j_per_step and _so_often(steps, one.energy_j_per_step),
        cost_usd=one.cost and _so_often(steps, one.cost),
        co2e_kg=one.co2e_kg and _so_often(steps, one.co2e_kg),
    )


def _so_often(steps: float, one: Interval) -> Interval:
    return Interval(value=steps * one.value, low=steps * one.low, high=steps * one.high)
