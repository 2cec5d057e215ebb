"""One step of one plan, task by task: when each pipeline rank computes, sends, waits, and what it keeps.

Where the model adds closed forms over the slowest rank, this plays the schedule with the seconds of every
stage. Both use the same formulas for a layer, a send and what follows the pipeline. Knows no file formats.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.model.columns import F64
from escala.model.estimate import timed_layers
from escala.model.layers import LayerTime
from escala.model.pipeline import exchange_once_s, exposed_share, send_once_s
from escala.model.plan import Plan, Plans, Schedule
from escala.model.problem import Problem
from escala.model.rejects import Reject, describe, rejects
from escala.model.replicas import gradient_sync_s, sharding_s
from escala.model.shards import shards
from escala.model.slowest import slowest_rank, step_wires
from escala.model.stages import slots
from escala.model.steptime import accumulate_s, optimizer_s, overhead_s, straggler_s
from escala.planning.schedules import SPLITS_BACKWARD, Kind, Task, exchanged, orders, source, stage_ranks
from escala.planning.stagework import stage_work

UNPLAYABLE: Final = Reject.STAGES | Reject.STAGE_SPLIT | Reject.SCHEDULE | Reject.SCHEDULE_MICRO_BATCHES
"""Rules without which a plan has no order of tasks; plans rejected for other reasons can be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """Seconds of one send between stages and of two opposite ones; the share that a receiver waits for."""

    send_s: float
    exchange_s: float
    exposed: float


@dataclass(frozen=True, slots=True)
class Span:
    """One task on its rank, from start to end; B and W are as in `schedules.Task`.

    `receive_s` are the seconds right before in which its rank waited for its input on the way.
    """

    rank: int
    stage: int
    kind: Kind
    micro_batch: int
    start_s: float
    end_s: float
    receive_s: float


@dataclass(frozen=True, slots=True)
class Phase:
    """What follows the pipeline on all ranks: one term of the step time, from start to end."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step of one plan.

    `spans` has the tasks of each rank in order. `bubble_share` is the part of the pipeline's time in which a
    rank neither computes nor receives, `peak_in_flight` the micro-batches that it holds at most, in units of
    all its layers. `kept_bytes` has one entry a stage; the other tuples have one a rank.
    """

    plan: Plan
    spans: tuple[tuple[Span, ...], ...]
    phases: tuple[Phase, ...]
    pipeline_s: float
    step_s: float
    bubble_share: tuple[float, ...]
    peak_in_flight: tuple[float, ...]
    peak_kept_bytes: tuple[float, ...]
    kept_bytes: tuple[float, ...]


def timeline(problem: Problem, plan: Plan) -> Timeline:
    """The pipeline task by task, then the model's sharding, gradients, optimizer, stragglers, overhead."""
    plans = Plans.of(plan)
    _refuse_unplayable(problem, plans)
    times = timed_layers(problem, plans)
    work = stage_work(problem, plan, times)
    backward_s = work.backward_s - work.weight_s if plan.schedule in SPLITS_BACKWARD else work.backward_s
    spans = play(plan, np.stack((work.forward_s, backward_s, work.weight_s)), stage_sends(problem, plans))
    pipeline_s = max(own[-1].end_s for own in spans)
    busy_s = [_busy_s(own) for own in spans]
    phases = tuple(_phases(problem, plans, times, pipeline_s, busy_s))
    kept_bytes = work.kept_bytes.tolist()
    return Timeline(
        plan=plan,
        spans=spans,
        phases=phases,
        pipeline_s=pipeline_s,
        step_s=phases[-1].end_s,
        bubble_share=tuple(1.0 - own_s / pipeline_s for own_s in busy_s),
        peak_in_flight=tuple(peak_in_flight(plan, own) for own in spans),
        peak_kept_bytes=tuple(peak(plan, own, kept_bytes) for own in spans),
        kept_bytes=tuple(kept_bytes),
    )


def stage_sends(problem: Problem, plans: Plans) -> Sends:
    """The sends of the model for one plan."""
    wires = step_wires(problem, plans)
    return Sends(
        send_s=float(send_once_s(problem, plans, wires)[0]),
        exchange_s=float(exchange_once_s(problem, plans, wires)[0]),
        exposed=float(exposed_share(problem, plans)[0]),
    )


def play(plan: Plan, seconds: F64, sends: Sends) -> tuple[tuple[Span, ...], ...]:
    """Start and end of every task: when its rank is free and the result that it waits for has arrived.

    `seconds` is the time of each kind of task (rows) on each stage (columns). A sender goes on while its
    result travels, but in an exchange of 1F1B, which both wait for. Its receiver, once free, waits for at
    least the exposed share of a send. One pass over the tasks: a rank that has to wait is taken up again by
    the task that it waits for.
    """
    every = orders(plan.schedule, plan.pp, plan.virtual_stages, plan.micro_batches)
    todo = [tasks[::-1] for tasks in every]
    ranks = stage_ranks(plan.schedule, plan.pp, plan.virtual_stages)
    both = exchanged(every, ranks) if plan.schedule is Schedule.ONE_F_ONE_B else ()
    task_s = seconds.tolist()
    spans: list[list[Span]] = [[] for _ in range(plan.pp)]
    free_s = [0.0] * plan.pp
    done_s: dict[Task | None, float] = {None: 0.0}
    waiting: dict[Task, int] = {}
    runnable = list(range(plan.pp))
    while runnable:
        rank = runnable.pop()
        while todo[rank]:
            task = todo[rank][-1]
            needed = source(task, len(ranks) - 1)
            if needed not in done_s:
                assert needed is not None
                waiting[needed] = rank
                break
            todo[rank].pop()
            is_received = needed is not None and ranks[needed.stage] != rank
            on_way_s = is_received * (sends.exchange_s if task in both else sends.send_s)
            start_s = max(free_s[rank] + sends.exposed * on_way_s, done_s[needed] + on_way_s)
            receive_s = min(on_way_s, start_s - free_s[rank])
            end_s = start_s + task_s[task.kind][task.stage]
            spans[rank].append(Span(rank, task.stage, task.kind, task.micro_batch, start_s, end_s, receive_s))
            done_s[task] = free_s[rank] = end_s
            if task in waiting:
                runnable.append(waiting.pop(task))
    assert not any(todo), "the orders of the ranks block each other"
    return tuple(tuple(own) for own in spans)


def held_over_time(
    plan: Plan, spans: Sequence[Span], per_stage: Sequence[float]
) -> Iterator[tuple[float, float]]:
    """What one rank keeps for backward over time, after every change: (seconds, amount).

    A stage's amount is held from the start of its forward to the end of its last backward task.
    """
    last = Kind.W if plan.schedule in SPLITS_BACKWARD else Kind.B
    held = 0.0
    for span in spans:
        if span.kind is Kind.F:
            held += per_stage[span.stage]
            yield span.start_s, held
        elif span.kind is last:
            held -= per_stage[span.stage]
            yield span.end_s, held


def peak(plan: Plan, spans: Sequence[Span], per_stage: Sequence[float]) -> float:
    """The most that one rank keeps for backward at once."""
    return max(held for _, held in held_over_time(plan, spans, per_stage))


def peak_in_flight(plan: Plan, spans: Sequence[Span]) -> float:
    """Micro-batches that one rank holds at most, in units of all its stages."""
    ones = [1.0] * (plan.pp * plan.virtual_stages)
    return peak(plan, spans, ones) / plan.virtual_stages


def _refuse_unplayable(problem: Problem, plans: Plans) -> None:
    bits = int(rejects(problem, plans)[0]) & int(UNPLAYABLE)
    if bits:
        raise InvalidInput(f"the plan has no timeline: {'; '.join(describe(bits))}")


def _busy_s(spans: Sequence[Span]) -> float:
    """Seconds in which one rank computes or receives."""
    return sum(span.receive_s + span.end_s - span.start_s for span in spans)


def _phases(
    problem: Problem, plans: Plans, times: list[LayerTime], pipeline_s: float, busy_s: Sequence[float]
) -> Iterator[Phase]:
    """The terms after the pipeline of the slowest rank, in turn; gradients hide in the bubble as played."""
    pairs = slots(problem.workload.network, plans)
    rank = slowest_rank(problem, plans, pairs, shards(problem.workload, plans, pairs), times)
    bubble_s = np.array([max(pipeline_s - max(busy_s), 0.0)])
    computing_s = (rank.forward_s + rank.backward_s) * plans.micro_batches
    terms = {
        "sharding": sharding_s(problem, plans, rank),
        "accumulate": accumulate_s(problem, plans, rank),
        "gradient_sync": gradient_sync_s(problem, plans, rank, bubble_s),
        "optimizer": optimizer_s(problem, plans, rank),
        "straggler": straggler_s(problem, plans, computing_s),
        "overhead": overhead_s(problem, plans),
    }
    start_s = pipeline_s
    for name, term_s in terms.items():
        yield Phase(name, start_s, start_s + float(term_s[0]))
        start_s += float(term_s[0])
