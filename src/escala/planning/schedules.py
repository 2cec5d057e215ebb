"""In which order each pipeline rank runs its forwards and backwards. Knows no seconds and no bytes.

The order of a rank is fixed before the step, as engines do it: a rank waits for the next task of its list, it
never takes another that happens to be ready.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final

from escala.model.plan import Schedule
from escala.model.stages import rank_stages


class Kind(IntEnum):
    """What a task computes: forward, backward, or weight gradients where the schedule keeps them apart."""

    F = 0
    B = 1
    W = 2


@dataclass(frozen=True, slots=True)
class Task:
    """One micro-batch through one stage, forward or backward.

    B is the whole backward, unless the schedule has W: then it is the gradient of the input alone.
    """

    kind: Kind
    stage: int
    micro_batch: int


SPLITS_BACKWARD: Final = frozenset({Schedule.ZERO_BUBBLE_V})
"""Schedules that run weight gradients as tasks of their own."""


def orders(schedule: Schedule, pp: int, virtual: int, micro_batches: int) -> list[list[Task]]:
    """The tasks of every pipeline rank in the order in which it runs them."""
    return [order(schedule, pp, virtual, micro_batches, rank) for rank in range(pp)]


def order(schedule: Schedule, pp: int, virtual: int, micro_batches: int, rank: int) -> list[Task]:
    """The tasks of one pipeline rank in the order in which it runs them.

    Forwards run ahead of the first backward by: none (pp = 1), all (GPipe), pp - 1 - rank (1F1B),
    2 (pp - 1 - rank) + (v - 1) pp chunks (interleaved); then one of each alternate. GPipe runs backward in
    reverse order. Source: Huang 2019 figure 2; Narayanan 2021 section 2.2 and Megatron-LM's schedules.
    """
    if schedule is Schedule.ZERO_BUBBLE_V:
        return list(_zero_bubble(pp, micro_batches, rank))
    if schedule is Schedule.INTERLEAVED:
        return _interleaved(pp, virtual, micro_batches, rank)
    forwards = [Task(Kind.F, rank, number) for number in range(micro_batches)]
    backwards = [Task(Kind.B, rank, number) for number in range(micro_batches)]
    if schedule is Schedule.GPIPE:
        return forwards + backwards[::-1]
    return _alternate(forwards, backwards, ahead=pp - 1 - rank)


def stage_ranks(schedule: Schedule, pp: int, virtual: int) -> list[int]:
    """The rank that holds each stage, in order of the stages."""
    held = {stage: rank for rank in range(pp) for stage in rank_stages(rank, pp, virtual, schedule)}
    return [held[stage] for stage in range(pp * virtual)]


def source(task: Task, last_stage: int) -> Task | None:
    """The task whose result this one waits for; the others that it needs come before it on its own rank."""
    if task.kind is Kind.W:
        return Task(Kind.B, task.stage, task.micro_batch)
    if task.kind is Kind.F:
        return Task(Kind.F, task.stage - 1, task.micro_batch) if task.stage > 0 else None
    if task.stage == last_stage:
        return Task(Kind.F, task.stage, task.micro_batch)
    return Task(Kind.B, task.stage + 1, task.micro_batch)


def target(task: Task, last_stage: int) -> Task | None:
    """The task that waits for the result of this one, on its rank or another."""
    if task.kind is Kind.F and task.stage < last_stage:
        return Task(Kind.F, task.stage + 1, task.micro_batch)
    if task.kind is Kind.B and task.stage > 0:
        return Task(Kind.B, task.stage - 1, task.micro_batch)
    return None


def exchanged(orders: list[list[Task]], ranks: list[int]) -> frozenset[Task]:
    """Tasks before which two ranks send to each other at once, as 1F1B does.

    What one rank has just computed the other waits for, and the other way round.
    """
    last_stage = len(ranks) - 1
    before = {task: earlier for own in orders for earlier, task in pairwise(own)}
    return frozenset(
        task
        for task, earlier in before.items()
        if receiver(earlier.kind, earlier.stage, ranks) is not None
        and (needed := source(task, last_stage)) is not None
        and ranks[needed.stage] != ranks[task.stage]
        and (opposite := target(earlier, last_stage)) is not None
        and before.get(opposite) == needed
    )


def receiver(kind: Kind, stage: int, ranks: list[int]) -> int | None:
    """The other rank that gets the result of a task; None where it stays. `ranks` are those of the stages."""
    if kind is Kind.W:
        return None
    next_stage = stage + 1 if kind is Kind.F else stage - 1
    is_end = not 0 <= next_stage < len(ranks)
    return None if is_end or ranks[next_stage] == ranks[stage] else ranks[next_stage]


def _alternate(forwards: list[Task], backwards: list[Task], ahead: int) -> list[Task]:
    """Some forwards ahead, then one forward and one backward in turn, then the backwards that are left."""
    first = min(ahead, len(forwards))
    pairs = zip(forwards[first:], backwards[: len(forwards) - first], strict=True)
    return forwards[:first] + [task for pair in pairs for task in pair] + backwards[len(forwards) - first :]


def _interleaved(pp: int, virtual: int, micro_batches: int, rank: int) -> list[Task]:
    """Chunks change after pp micro-batches; backward starts with the last chunk."""
    assert micro_batches % pp == 0, "plans with other micro-batches are rejected"
    rounds = [
        (chunk, start + number)
        for start in range(0, micro_batches, pp)
        for chunk in range(virtual)
        for number in range(pp)
    ]
    forwards = [Task(Kind.F, rank + pp * chunk, number) for chunk, number in rounds]
    backwards = [Task(Kind.B, rank + pp * (virtual - 1 - chunk), number) for chunk, number in rounds]
    return _alternate(forwards, backwards, ahead=2 * (pp - 1 - rank) + (virtual - 1) * pp)


def _zero_bubble(pp: int, micro_batches: int, rank: int) -> Iterator[Task]:
    """Stage `rank` on the way down, its mirror on the way up; W fills what would be idle.

    At most pp micro-batches are held, and no rank idles between its first and last task when F, B and W take
    equal times. The pattern is that of 2 pp - 1 micro-batches or more; fewer leave tasks out.
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 6 and figure 6.
    """
    after = pp - rank
    down, up = rank_stages(rank, pp, 2, Schedule.ZERO_BUBBLE_V)
    forward_down, back_down, weight_down = ((kind, down) for kind in Kind)
    forward_up, back_up, weight_up = ((kind, up) for kind in Kind)
    turn = [forward_up, back_up, weight_up]
    steady = max(micro_batches - (2 * pp - 1), 0) + rank
    pattern = [forward_down] * (2 * after - 1) + [forward_up, forward_down] * rank + turn * after
    pattern += [forward_down, back_down, weight_down, *turn] * steady
    pattern += [back_down, weight_down, *turn] * (after - 1)
    pattern += [back_down, back_up] * rank + [back_down, weight_down] * after
    pattern += [weight_up] * rank + [weight_down] * rank
    seen: Counter[tuple[Kind, int]] = Counter()
    for kind, stage in pattern:
        if seen[kind, stage] < micro_batches:
            yield Task(kind, stage, seen[kind, stage])
        seen[kind, stage] += 1
