"""Seconds that a step needs at least so that the first pipeline rank, with most in flight, fits.

Closer than the bounds of a cell, since schedule, split and sharding are known; the links may still be open.
"""

from dataclasses import dataclass

import numpy as np

from escala.model.bounds import LeastStates, idle_s, over, states_at_loss
from escala.model.columns import F64, Bool, distinct
from escala.model.ends import embedding_s, head_s
from escala.model.estimate import kept_layers, timed_rows
from escala.model.layers import LAYER_COLUMNS
from escala.model.memory import logits_bytes, near, room_bytes
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.shards import shards
from escala.model.stages import Slots, first_slots, in_flight, mean_slots
from escala.model.states import bucket_bytes, gathered_bytes, state_bytes
from escala.model.steptime import overhead_s, straggler_s
from escala.model.traffic import Wires


def first_rank_s(problem: Problem, plans: Plans, wires: Wires, limit_bytes: float) -> F64:
    """Seconds that a step needs at least when the first rank stays inside the limit; infinite if it cannot.

    Work, ends and recompute of the first rank or of the mean rank, whichever is more; the bubble of the mean
    rank (none for zero-bubble V), stragglers and overhead. Every rank recomputes as many layers as the first.
    """
    first, most = first_slots(problem.workload.network, plans)
    mean = mean_slots(problem.workload.network, plans)
    cost, again = _costs(problem, plans, wires), _needed(problem, plans, first, limit_bytes)
    # ranks with more layers than the first recompute a smaller share of them
    mean_s = cost.of(mean, again.diluted(np.minimum(1.0, first.layers / np.maximum(most, 1.0))))
    busy_s = np.asarray(np.maximum(cost.of(first, again), mean_s) * plans.micro_batches, np.float64)
    around_s = straggler_s(problem, plans, busy_s) + overhead_s(problem, plans)
    total_s = busy_s + idle_s(problem, plans, mean_s) + around_s
    fits = again.is_enough | again.selective_is_enough
    return np.asarray(np.where(fits, total_s, np.inf), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Again:
    """Recompute that makes room: the least share of layers, if all are enough, and if selective is enough."""

    share: F64
    is_enough: Bool
    selective_is_enough: Bool

    def diluted(self, ratio: F64) -> "_Again":
        """The same with a part of the share."""
        return _Again(
            share=self.share * ratio,
            is_enough=self.is_enough,
            selective_is_enough=self.selective_is_enough,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Costs:
    """Seconds of one micro-batch: of each kind of layer (work and recompute), of the ends."""

    work_s: list[F64]
    full_s: list[F64]
    selective_s: list[F64]
    head_s: F64
    embedding_s: F64

    def of(self, pairs: Slots, again: _Again) -> F64:
        """Seconds of one rank of every plan, with the cheaper recompute of those that are enough."""
        some_s = again.share * over(pairs, self.full_s)
        selective_s = over(pairs, self.selective_s)
        either_s = np.where(again.is_enough, np.minimum(some_s, selective_s), selective_s)
        again_s = np.where(again.selective_is_enough, either_s, some_s)
        ends_s = pairs.has_head * self.head_s + pairs.has_embedding * self.embedding_s
        return np.asarray(over(pairs, self.work_s) + ends_s + again_s, np.float64)


def _costs(problem: Problem, plans: Plans, wires: Wires) -> _Costs:
    """Computed once per distinct row; the links are those of the first row of each."""
    first, group = distinct([getattr(plans, name) for name in LAYER_COLUMNS])
    few = plans.take(first)
    each = timed_rows(problem, few, wires.take(first))
    return _Costs(
        work_s=[(times.forward_s + times.backward_s)[group] for times in each],
        full_s=[times.recompute_full_s[group] for times in each],
        selective_s=[times.recompute_selective_s[group] for times in each],
        head_s=head_s(problem, few)[group],
        embedding_s=embedding_s(problem, few)[group],
    )


def _needed(problem: Problem, plans: Plans, pairs: Slots, limit_bytes: float) -> _Again:
    """Recompute of the first layers (whole ones) or selectively that leaves the rank inside the limit."""
    layers, keeps = np.maximum(pairs.layers, 1.0), kept_layers(problem, plans)
    # bounds are rounded otherwise than needs: a byte more must not decide
    flights = in_flight(plans, pairs)
    room, here = _room_bytes(problem, plans, pairs, limit_bytes) / flights + 1.0, near(plans, pairs, flights)
    whole = over(here, [kept.whole_bytes for kept in keeps])
    freed = np.maximum(whole - over(here, [kept.checkpoint_bytes for kept in keeps]), 1.0)
    count = np.ceil(np.maximum(whole - room, 0.0) / freed * layers)
    selective = over(here, [kept.selective_bytes for kept in keeps])
    return _Again(
        share=np.minimum(count / layers, 1.0),
        is_enough=count <= layers,
        selective_is_enough=selective <= room,
    )


def _room_bytes(problem: Problem, plans: Plans, pairs: Slots, limit_bytes: float) -> F64:
    """What states, buckets and logits leave at the loss for the activations of all micro-batches."""
    parts = shards(problem.workload, plans, pairs)
    lasting, gradients = state_bytes(problem, plans, pairs, parts)
    held = LeastStates(lasting_bytes=lasting, gradients_bytes=gradients, moved_bytes=np.zeros(len(plans)))
    room = room_bytes(problem, states_at_loss(problem, plans, held), limit_bytes)
    running = gathered_bytes(problem, plans, pairs, parts) + bucket_bytes(problem, plans, pairs, parts)
    return room - running - logits_bytes(problem, plans, pairs)
