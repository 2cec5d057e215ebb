"""What granularity and schedule buy at the same devices: one setting of a plan changed at a time.

A setting is worth what the step takes longer without it, or less with another value. All of it is the model's
estimate of two plans; the settings are not independent, so their gains do not add up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala.model.cluster import Cluster
from escala.model.engine import Engine
from escala.model.estimate import estimate
from escala.model.plan import Compile, Plan, Plans, Precision, Recompute, Schedule, Split
from escala.model.precision import RECIPES
from escala.model.problem import Problem
from escala.planning.space import MAX_MICRO_BATCH, SpaceLimits, divisors, finish_choices

LEAST_SHARE: Final = 0.001
"""Of the step: what changes it by less is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a plan beside another value of it.

    `saved_s` is what the step takes less: with the plan's value than with the plainest one (`is_used`), or
    with the value that is named than with the plan's. `memory_ratio` is the need with the value that is
    faster over the need with the other. `plan` is the other plan; None where it is another way of the engine.
    """

    name: str
    value: str
    other: str
    is_used: bool
    saved_s: float
    share: float
    memory_ratio: float
    plan: Plan | None


def settings(problem: Problem, plan: Plan, limits: SpaceLimits | None = None) -> list[Setting]:
    """Every setting whose plainest or best value changes the step, the largest gain first.

    Shares are of the slower of the two steps.
    """
    known = limits or SpaceLimits(precision=plan.precision)
    found = [each for lever in _levers(problem, plan, known) for each in _judged(problem, plan, *lever)]
    found += _engine_settings(problem, plan)
    return sorted(found, key=lambda each: -each.saved_s)


Choice = tuple[str, Plan]


def _judged(problem: Problem, plan: Plan, name: str, own: str, choices: list[Choice]) -> Iterator[Setting]:
    """The first choice is the plainest; the best of all is named where it beats the plan."""
    if not choices:
        return
    told = estimate(problem, Plans.of([plan, *(other for _, other in choices)]))
    step_s = np.where(told.reject == 0, told.step_s, np.inf)
    needed = told.memory.needed_bytes
    plainest, best = 1, 1 + int(np.argmin(step_s[1:]))
    for row, is_used in ((plainest, True), (best, False)):
        fast, slow = (0, row) if is_used else (row, 0)
        if not np.isfinite(step_s[[fast, slow]]).all():
            continue
        saved_s = float(step_s[slow] - step_s[fast])
        if saved_s <= LEAST_SHARE * step_s[slow]:
            continue
        value, other = choices[row - 1]
        yield Setting(
            name=name,
            value=own if is_used else value,
            other=value if is_used else own,
            is_used=is_used,
            saved_s=saved_s,
            share=saved_s / float(step_s[slow]),
            memory_ratio=float(needed[fast] / needed[slow]),
            plan=other,
        )


def _levers(problem: Problem, plan: Plan, limits: SpaceLimits) -> Iterator[tuple[str, str, list[Choice]]]:
    """Name, the plan's own value, and the other values; the plainest of them first."""
    yield "micro-batch", f"{plan.micro_batch} × {plan.micro_batches}", list(_micro_batches(plan, limits))
    yield "recompute", _recompute_word(plan), list(_recomputes(problem, plan, limits))
    modes, losses = finish_choices(problem, limits)
    yield (
        "compile",
        _on(plan.compile is not Compile.OFF),
        [(_on(mode), replace(plan, compile=Compile(mode))) for mode in modes if mode != plan.compile],
    )
    yield (
        "fused loss",
        _on(plan.fused_loss),
        [(_on(each), replace(plan, fused_loss=bool(each))) for each in losses if each != plan.fused_loss],
    )
    if plan.zero == 3 and plan.shard > 1:
        kept = "weights kept" if not plan.reshard else "weights gathered again"
        other = "weights gathered again" if not plan.reshard else "weights kept"
        yield "sharding", kept, [(other, replace(plan, reshard=not plan.reshard))]
    if plan.tp > 1:
        yield "sequence parallel", _on(plan.sp), [(_on(not plan.sp), replace(plan, sp=not plan.sp))]
    if plan.pp > 1:
        yield "schedule", _schedule_word(plan), list(_schedules(problem, plan))
    yield "precision", _precision_word(plan.precision), list(_precisions(problem, plan))


def _on(value: object) -> str:
    return "on" if value else "off"


def _micro_batches(plan: Plan, limits: SpaceLimits) -> Iterator[Choice]:
    """From one sample at a time upwards; accumulation takes the rest of the batch."""
    samples = plan.micro_batch * plan.micro_batches
    for size in limits.keep("micro_batch", tuple(d for d in divisors(samples) if d <= MAX_MICRO_BATCH)):
        if size != plan.micro_batch:
            count = samples // size
            yield f"{size} × {count}", replace(plan, micro_batch=size, micro_batches=count)


def _recomputes(problem: Problem, plan: Plan, limits: SpaceLimits) -> Iterator[Choice]:
    """From everything to nothing: full, quarters of the layers, selective, none."""
    layers = -(-problem.workload.network.layers // plan.pp)
    modes = [(Recompute.FULL, 0)]
    modes += [
        (Recompute.FIRST_LAYERS, layers * part // 4) for part in (3, 2, 1) if 0 < layers * part // 4 < layers
    ]
    modes += [(Recompute.SELECTIVE, 0), (Recompute.NONE, 0)]
    for mode, some in modes:
        other = replace(plan, recompute=mode, recompute_layers=some)
        if other != plan and limits.keep("recompute", (int(mode),)):
            yield _recompute_word(other), other


def _recompute_word(plan: Plan) -> str:
    if plan.recompute is Recompute.FIRST_LAYERS:
        return f"{plan.recompute_layers} layers"
    return plan.recompute.name.lower()


def _schedules(problem: Problem, plan: Plan) -> Iterator[Choice]:
    """GPipe, 1F1B, interleaved at each number of stages a rank, zero-bubble V."""
    most = max(1, (problem.workload.network.layers + 2) // plan.pp)
    shapes = [(Schedule.GPIPE, 1), (Schedule.ONE_F_ONE_B, 1)]
    shapes += [(Schedule.INTERLEAVED, virtual) for virtual in range(2, most + 1)]
    shapes += [(Schedule.ZERO_BUBBLE_V, 2)]
    for schedule, virtual in shapes:
        for split in (Split.EVEN, Split.BALANCED):
            other = replace(plan, schedule=schedule, virtual_stages=virtual, split=split)
            if (schedule, virtual) != (plan.schedule, plan.virtual_stages):
                yield _schedule_word(other), other


def _schedule_word(plan: Plan) -> str:
    words = {Schedule.GPIPE: "GPipe", Schedule.ONE_F_ONE_B: "1F1B", Schedule.ZERO_BUBBLE_V: "zero-bubble V"}
    return words.get(plan.schedule, f"interleaved {plan.virtual_stages}")


def _precisions(problem: Problem, plan: Plan) -> Iterator[Choice]:
    """TF32 first where the device has it and the plan uses less, then every other recipe."""
    plain = problem.accelerator.tf32_flop_per_s is not None and plan.precision > Precision.TF32
    first = [Precision.TF32] if plain else []
    for each in (*first, *(other for other in Precision if other not in first)):
        if each != plan.precision:
            yield _precision_word(each), replace(plan, precision=each)


def _precision_word(precision: Precision) -> str:
    return RECIPES[precision].name


def _engine_settings(problem: Problem, plan: Plan) -> Iterator[Setting]:
    """What the engine's overlap saves: without prefetch of gathers, without reducing beside backward."""
    here = estimate(problem, Plans.of(plan))
    for name, own, engine in _without(problem):
        bare = replace(
            problem, engine=engine, cluster=_unhidden(problem) if name == "buckets" else problem.cluster
        )
        there = estimate(bare, Plans.of(plan))
        slow_s, saved_s = float(there.step_s[0]), float(there.step_s[0] - here.step_s[0])
        if saved_s > LEAST_SHARE * slow_s:
            yield Setting(
                name=name,
                value=own,
                other="off",
                is_used=True,
                saved_s=saved_s,
                share=saved_s / slow_s,
                memory_ratio=float(here.memory.needed_bytes[0] / there.memory.needed_bytes[0]),
                plan=None,
            )


def _without(problem: Problem) -> Iterator[tuple[str, str, Engine]]:
    engine, backend = problem.engine, problem.cluster.backend
    if problem.messages.prefetches:
        late = {**dict(engine.messages), backend: replace(problem.messages, prefetches=False)}
        yield "prefetch", "of gathers", replace(engine, messages=tuple(late.items()))
    yield (
        "buckets",
        "reduced beside backward",
        replace(engine, time=replace(engine.time, gradient_hidden=0.0)),
    )


def _unhidden(problem: Problem) -> Cluster:
    links = tuple(replace(link, hidden_share=None) for link in problem.cluster.links)
    return replace(problem.cluster, links=links)
