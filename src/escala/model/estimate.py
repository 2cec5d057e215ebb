"""The whole prediction for many plans: memory, step time, energy, utilisation, reject bits. Wiring only."""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from escala.model.activations import KEPT_COLUMNS, Kept, kept
from escala.model.columns import F64, I64, distinct
from escala.model.ends import embedding_s, head_s
from escala.model.energy import Footprint, footprint
from escala.model.flops import hardware_flop, model_flop, reference_peak_flop_per_s, utilisation
from escala.model.interval import interval_ratio, regime
from escala.model.layers import (
    COMPUTE_COLUMNS,
    GROUP_COLUMNS,
    LAYER_COLUMNS,
    Compute,
    LayerTime,
    compute,
    layer_time,
)
from escala.model.memory import (
    Memory,
    Verdict,
    early_gradients,
    least_running_bytes,
    logits_bytes,
    memory,
    room_bytes,
    with_slack,
)
from escala.model.plan import Plans, Schedule
from escala.model.problem import Problem
from escala.model.rejects import Reject, rejects
from escala.model.shards import Shards, shards
from escala.model.slowest import slowest_rank
from escala.model.stages import Slots, kinds, mean_slots, slots
from escala.model.states import STATE_COLUMNS, state_bytes
from escala.model.steptime import StepTime, overhead_s, step_time, straggler_s
from escala.model.traffic import layer_wires
from escala.model.work import Work, work

Columns = TypeVar("Columns", LayerTime, Compute, Kept)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """What is predicted for each plan. Shapes: (n,)."""

    plans: Plans
    time: StepTime
    memory: Memory
    footprint: Footprint
    step_s: F64
    mfu: F64
    hfu: F64
    interval_ratio: F64
    regime: I64
    reject: I64

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.plans)


def estimate(problem: Problem, plans: Plans) -> Estimate:
    """Memory, step time, energy and reject bits of every plan (rows need not be feasible)."""
    dealt = deal(problem, plans)
    space = memory_of(problem, plans, dealt)
    time = step_time(problem, plans, dealt.pairs, dealt.parts, timed_layers(problem, plans))
    step_s = time.step_s
    peak, devices = reference_peak_flop_per_s(problem), plans.devices.astype(np.float64)
    too_big = np.where(space.verdict == Verdict.DOES_NOT_FIT, int(Reject.MEMORY), 0)
    return Estimate(
        plans=plans,
        time=time,
        memory=space,
        footprint=footprint(problem, plans, time),
        step_s=step_s,
        mfu=utilisation(model_flop(problem.workload), step_s, devices, peak),
        hfu=utilisation(hardware_flop(problem.workload, plans), step_s, devices, peak),
        interval_ratio=interval_ratio(problem, plans),
        regime=regime(problem, plans),
        reject=rejects(problem, plans) | too_big,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dealt:
    """What memory depends on beside recompute: slots, parameters and kept activations of each plan."""

    pairs: Slots
    parts: Shards
    keeps: list[Kept]


def deal(problem: Problem, plans: Plans) -> Dealt:
    """Layers, parameters and activations of every plan; the same whatever is recomputed."""
    pairs = slots(problem.workload.network, plans)
    parts = shards(problem.workload, plans, pairs)
    return Dealt(pairs=pairs, parts=parts, keeps=kept_layers(problem, plans))


def memory_of(problem: Problem, plans: Plans, dealt: Dealt) -> Memory:
    """Memory alone."""
    return memory(problem, plans, dealt.pairs, dealt.parts, dealt.keeps)


def time_of(problem: Problem, plans: Plans) -> StepTime:
    """Seconds alone."""
    pairs = slots(problem.workload.network, plans)
    return step_time(
        problem, plans, pairs, shards(problem.workload, plans, pairs), timed_layers(problem, plans)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastStates:
    """States of the average pipeline rank: no rank's maximum is below it, however layers are dealt."""

    lasting_bytes: F64
    gradients_bytes: F64

    def take(self, rows: Any) -> "LeastStates":
        """The states of the given rows."""
        return LeastStates(lasting_bytes=self.lasting_bytes[rows], gradients_bytes=self.gradients_bytes[rows])


def work_of(problem: Problem, plans: Plans) -> Work:
    """FLOP of a step and the bytes that one device sends, by kind and by link."""
    dealt = deal(problem, plans)
    rank = slowest_rank(problem, plans, dealt.pairs, dealt.parts, timed_layers(problem, plans))
    return work(problem, plans, rank, layer_wires(problem, plans))


def least_states(problem: Problem, plans: Plans) -> LeastStates:
    """Weights, optimizer state and gradients of the average rank of every plan."""
    first, group = distinct([getattr(plans, name) for name in STATE_COLUMNS])
    few = plans.take(first)
    pairs = mean_slots(problem.workload.network, few)
    lasting, gradients = state_bytes(problem, few, pairs, shards(problem.workload, few, pairs))
    return LeastStates(lasting_bytes=lasting[group], gradients_bytes=gradients[group])


def least_bytes(problem: Problem, plans: Plans, states: LeastStates) -> F64:
    """Memory that every way to run a plan needs at least: the average pipeline rank, fully recomputed.

    At the loss: states + one micro-batch of checkpoints + logits; at the step: states and gradients.
    """
    first, group = distinct([getattr(plans, name) for name in (*KEPT_COLUMNS, "pp", "fused_loss")])
    few = plans.take(first)
    pairs = mean_slots(problem.workload.network, few)
    running = least_running_bytes(problem, few, pairs, kept_layers(problem, few))[group]
    at_loss = with_slack(problem, _states_at_loss(problem, plans, states), running)
    at_step = with_slack(problem, states.lasting_bytes + states.gradients_bytes, np.zeros(len(plans)))
    return np.maximum(at_loss, at_step)


def _states_at_loss(problem: Problem, plans: Plans, states: LeastStates) -> F64:
    early = early_gradients(problem, plans)
    return states.lasting_bytes + np.where(early, states.gradients_bytes, 0.0)


def least_s(problem: Problem, plans: Plans, states: LeastStates, limit_bytes: float) -> F64:
    """Seconds that every pipeline and sharding of a cell needs at least: the average rank's work.

    Layers and ends, and what must be recomputed at least so that the average rank stays inside the limit: the
    share of layers that makes room, or selective recompute where that makes enough. Stragglers and overhead
    come on top of all of it.
    """
    each, pairs = _timed_rows(problem, plans), mean_slots(problem.workload.network, plans)
    ends_s = (head_s(problem, plans) + embedding_s(problem, plans)) / plans.pp
    layers_s = _over(pairs, [t.forward_s + t.backward_s for t in each])
    room = room_bytes(problem, _states_at_loss(problem, plans, states), limit_bytes)
    again_s = _least_recompute_s(problem, plans, pairs, each, room)
    busy_s = (layers_s + ends_s + again_s) * plans.micro_batches
    return busy_s + straggler_s(problem, plans, busy_s) + overhead_s(problem, plans)


def least_bubble_s(problem: Problem, plans: Plans, seconds: F64) -> F64:
    """Idle time that a schedule adds at least to the least seconds of its cell; none for zero-bubble V.

    The bubble of an average rank, with the busy time that is inside the least seconds.
    """
    share = straggler_s(problem, plans, np.ones(len(plans)))
    busy_s = (seconds - overhead_s(problem, plans)) / (1.0 + share) / plans.micro_batches
    idle_s = (plans.pp - 1) / plans.virtual_stages * busy_s * problem.assumptions.bubble_ratio
    return np.where(plans.schedule == Schedule.ZERO_BUBBLE_V, 0.0, idle_s)


def _least_recompute_s(problem: Problem, plans: Plans, pairs: Slots, each: list[LayerTime], room: F64) -> F64:
    keeps = kept_layers(problem, plans)
    whole = _over(pairs, [k.whole_bytes for k in keeps])
    room = room - logits_bytes(problem, plans, pairs)
    missing = np.maximum(whole - room, 0.0)
    # whichever kind frees a byte fastest, so that no mix of layers on any rank is cheaper
    per_byte = [
        t.recompute_full_s / np.maximum(k.whole_bytes - k.checkpoint_bytes, 1.0)
        for t, k in zip(each, keeps, strict=True)
    ]
    all_s = _over(pairs, [t.recompute_full_s for t in each])
    some_s = np.minimum(missing * np.minimum.reduce(per_byte), all_s)
    selective_s = _over(pairs, [t.recompute_selective_s for t in each])
    enough = _over(pairs, [k.selective_bytes for k in keeps]) <= room
    return np.asarray(np.where(enough, np.minimum(some_s, selective_s), some_s), np.float64)


def _over(pairs: Slots, columns: list[F64]) -> F64:
    """Sum over the layers of each pair (one pair a plan)."""
    terms = (pairs.counts[:, kind] * column for kind, column in enumerate(columns))
    return np.asarray(sum(terms, np.zeros(len(pairs.row))), np.float64)


def timed_layers(problem: Problem, plans: Plans) -> list[LayerTime]:
    """Seconds of every kind of layer, once per distinct row of the columns that matter to it."""
    first, group = distinct([getattr(plans, name) for name in LAYER_COLUMNS])
    return [_spread(times, group) for times in _timed_rows(problem, plans.take(first))]


def _timed_rows(problem: Problem, plans: Plans) -> list[LayerTime]:
    """The same of plans that differ: links depend on some of their columns, what is computed on others."""
    first, placed = distinct([getattr(plans, name) for name in GROUP_COLUMNS])
    wires = layer_wires(problem, plans.take(first)).take(placed)
    first, shaped = distinct([getattr(plans, name) for name in COMPUTE_COLUMNS])
    few = plans.take(first)
    times = []
    for stack, block in kinds(problem.workload.network):
        own = _spread(compute(problem, few, stack, block), shaped)
        times.append(layer_time(problem, plans, stack, block, own, wires))
    return times


def kept_layers(problem: Problem, plans: Plans) -> list[Kept]:
    """Activations of every kind of layer, computed once per distinct row of the columns that matter."""
    first, group = distinct([getattr(plans, name) for name in KEPT_COLUMNS])
    few = plans.take(first)
    return [_spread(kept(problem, few, *kind), group) for kind in kinds(problem.workload.network)]


def _spread(columns: Columns, group: I64) -> Columns:
    """The columns of distinct rows dealt to all rows."""
    return type(columns)(**{f.name: getattr(columns, f.name)[group] for f in fields(columns)})
