"""What plans need at least: memory and seconds that no way to run them undercuts, for searches that skip.

A bound that is too low costs time, one that is too high costs the answer: each term of the model that a bound
uses has to be the estimate's own, or less.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from escala.model.activations import KEPT_COLUMNS
from escala.model.columns import F64, I64, distinct
from escala.model.ends import embedding_s, head_s
from escala.model.estimate import kept_layers, timed_rows
from escala.model.host import host_bytes, moves, offloaded_bytes
from escala.model.layers import GROUP_COLUMNS, LayerTime
from escala.model.memory import (
    early_gradients,
    host_verdict,
    least_running_bytes,
    logits_bytes,
    near,
    room_bytes,
    with_slack,
)
from escala.model.placement import Wire
from escala.model.plan import Plans, Schedule
from escala.model.problem import Problem
from escala.model.shards import shards
from escala.model.stages import Slots, mean_slots
from escala.model.states import STATE_COLUMNS, state_bytes
from escala.model.steptime import overhead_s, straggler_s
from escala.model.traffic import Wires, layer_wires

ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastStates:
    """States of the average pipeline rank: no rank's maximum is below it, however layers are dealt.

    `moved_bytes` are those in host memory: no plan's fullest node has less for each of its devices.
    """

    lasting_bytes: F64
    gradients_bytes: F64
    moved_bytes: F64

    def take(self, rows: Any) -> "LeastStates":
        """The states of the given rows."""
        return LeastStates(**{name: getattr(self, name)[rows] for name in LeastStates.__slots__})


def least_states(problem: Problem, plans: Plans) -> LeastStates:
    """Weights, optimizer state and gradients of the average rank of every plan, on device and host."""
    first, group = distinct([getattr(plans, name) for name in STATE_COLUMNS])
    few = plans.take(first)
    pairs = mean_slots(problem.workload.network, few)
    parts, none = shards(problem.workload, few, pairs), np.zeros(len(few))
    lasting, gradients = state_bytes(problem, few, pairs, parts)
    moved = offloaded_bytes(problem, few, pairs, parts, none) if moves(few) else none
    return LeastStates(
        lasting_bytes=lasting[group], gradients_bytes=gradients[group], moved_bytes=moved[group]
    )


def least_bytes(problem: Problem, plans: Plans, states: LeastStates) -> F64:
    """Memory that every way to run a plan needs at least: the average pipeline rank, fully recomputed.

    At the loss: states + one micro-batch of checkpoints + logits; at the step: states and gradients.
    """
    first, group = distinct([getattr(plans, name) for name in (*KEPT_COLUMNS, "pp", "fused_loss")])
    few = plans.take(first)
    pairs = mean_slots(problem.workload.network, few)
    running = least_running_bytes(problem, few, pairs, kept_layers(problem, few))[group]
    at_loss = with_slack(problem, states_at_loss(problem, plans, states), running)
    at_step = with_slack(problem, states.lasting_bytes + states.gradients_bytes, np.zeros(len(plans)))
    return np.maximum(at_loss, at_step)


def least_host_verdict(problem: Problem, plans: Plans, states: LeastStates) -> I64:
    """Verdict on the host's memory that no way to run a plan undercuts: of the states without activations."""
    # bounds are rounded otherwise than what they bound
    moved_bytes = states.moved_bytes * (1.0 - ROUNDING)
    return host_verdict(problem, host_bytes(problem, plans, moved_bytes), moved_bytes)


def states_at_loss(problem: Problem, plans: Plans, states: LeastStates) -> F64:
    """States at the loss; gradients that come later count as the bytes that they may save.

    At a later and higher peak they are there, and what they hold then has the slack of states, not more.
    """
    engine = problem.engine.memory
    saved = max(engine.dynamic_slack - engine.static_slack, 0.0) / (1.0 + engine.static_slack)
    share = np.where(early_gradients(problem, plans), 1.0, -saved)
    return states.lasting_bytes + share * states.gradients_bytes


def least_s(problem: Problem, plans: Plans, wires: Wires, states: LeastStates, limit_bytes: float) -> F64:
    """Seconds that every pipeline and sharding of a cell needs at least: the average rank's work.

    Layers and ends, and what must be recomputed at least so that the average rank stays inside the limit: the
    share of layers that makes room, or selective recompute where that makes enough. Stragglers and overhead
    come on top of all of it.
    """
    each, pairs = timed_rows(problem, plans, wires), mean_slots(problem.workload.network, plans)
    ends_s = (head_s(problem, plans) + embedding_s(problem, plans)) / plans.pp
    layers_s = over(pairs, [t.forward_s + t.backward_s for t in each])
    room = room_bytes(problem, states_at_loss(problem, plans, states), limit_bytes)
    again_s = _least_recompute_s(problem, plans, pairs, each, room)
    busy_s = (layers_s + ends_s + again_s) * plans.micro_batches
    return busy_s + straggler_s(problem, plans, busy_s) + overhead_s(problem, plans)


def least_bubble_s(problem: Problem, plans: Plans, seconds: F64) -> F64:
    """Idle time that a schedule adds at least to the least seconds of its cell: that of their busy time."""
    share = straggler_s(problem, plans, np.ones(len(plans)))
    busy_s = (seconds - overhead_s(problem, plans)) / (1.0 + share) / plans.micro_batches
    return idle_s(problem, plans, busy_s)


def idle_s(problem: Problem, plans: Plans, busy_s: F64) -> F64:
    """Bubble when a micro-batch keeps the mean rank busy so long at least; none for zero-bubble V."""
    bubble_s = (plans.pp - 1) / plans.virtual_stages * busy_s * problem.assumptions.bubble_ratio
    return np.where(plans.schedule == Schedule.ZERO_BUBBLE_V, 0.0, bubble_s)


def _least_recompute_s(problem: Problem, plans: Plans, pairs: Slots, each: list[LayerTime], room: F64) -> F64:
    keeps = kept_layers(problem, plans)
    here = near(plans, pairs, np.ones(len(plans)))
    whole = over(here, [k.whole_bytes for k in keeps])
    room = room - logits_bytes(problem, plans, pairs)
    missing = np.maximum(whole - room, 0.0)
    # whichever kind frees a byte fastest, so that no mix of layers on any rank is cheaper
    per_byte = [
        t.recompute_full_s / np.maximum(k.whole_bytes - k.checkpoint_bytes, 1.0)
        for t, k in zip(each, keeps, strict=True)
    ]
    all_s = over(pairs, [t.recompute_full_s for t in each])
    some_s = np.minimum(missing * np.minimum.reduce(per_byte), all_s)
    selective_s = over(pairs, [t.recompute_selective_s for t in each])
    enough = over(here, [k.selective_bytes for k in keeps]) <= room
    return np.asarray(np.where(enough, np.minimum(some_s, selective_s), some_s), np.float64)


def over(pairs: Slots, columns: list[F64]) -> F64:
    """Sum over the layers of each pair (one pair a plan)."""
    terms = (pairs.counts[:, kind] * column for kind, column in enumerate(columns))
    return np.asarray(sum(terms, np.zeros(len(pairs.row))), np.float64)


def best_wires(problem: Problem, plans: Plans, placements: Sequence[int]) -> Wires:
    """Links that are nowhere worse than those which any of the mesh orders gives the plans."""
    first, group = distinct([getattr(plans, name) for name in GROUP_COLUMNS if name != "placement"])
    few = plans.take(first)
    each = [layer_wires(problem, replace(few, placement=np.full(len(few), code))) for code in placements]
    best = {name: _best([getattr(wires, name) for wires in each]) for name in Wires.__slots__}
    return Wires(**best).take(group)


def _best(wires: Sequence[Wire]) -> Wire:
    """The best of each field, though no link has them all.

    When more ranks are inside the fast domain, an all-to-all sends less out of it and more within: what
    leaves is that of the link with most ranks inside, what stays that of the link with fewest.
    """
    every = {name: np.array([getattr(wire, name) for wire in wires]) for name in Wire.__slots__}
    most, least = every["inside"].max(axis=0), every["inside"].min(axis=0)
    spread = (most - 1) / np.maximum(least - 1, 1)
    speeds = {name: each.max(axis=0) for name, each in every.items() if name.endswith("_bytes_per_s")}
    latencies = {name: each.min(axis=0) for name, each in every.items() if name.endswith("latency_s")}
    speeds["fast_bytes_per_s"] = np.where(least > 1, speeds["fast_bytes_per_s"] * spread, np.inf)
    return Wire(
        ranks=every["ranks"][0],
        inside=most,
        hidden_share=every["hidden_share"].max(axis=0),
        message_s=every["message_s"].min(axis=0),
        level=every["level"].min(axis=0),
        **speeds,
        **latencies,
    )
