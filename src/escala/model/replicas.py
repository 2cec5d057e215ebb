"""Seconds that data parallelism adds: gathers of sharded weights, reductions of gradients, what hides."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from escala.model.columns import F64, Bool, soft_maximum
from escala.model.efficiency import pass_s
from escala.model.placement import Wire
from escala.model.plan import LocalWire, Plans
from escala.model.precision import compute_bytes
from escala.model.problem import Problem
from escala.model.shards import Shards
from escala.model.slowest import Rank, expert_held_ranks, held_ranks

SCALE_BYTES: Final = 4.0 / 1024
"""A difference's part of the scale in fp32 that goes with each 1,024 in int8 and fp4."""
INT8_BYTES: Final = 1.0 + SCALE_BYTES
"""A difference in int8, and its part of a scale."""
WIRE_BYTES: Final = {LocalWire.FP32: 4.0, LocalWire.BF16: 2.0, LocalWire.INT8: 1.0, LocalWire.FP4: 0.5}
NARROW: Final = (LocalWire.INT8, LocalWire.FP4)
"""Formats whose sums do not fit: differences are gathered from all."""
OUTER_PASS_BYTES: Final = 4.0 * 14
"""Of each weight in fp32: difference (3 numbers), momentum (3), step (4), agreed weight (2), copy (2)."""


def sharding_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Exposed gathers and scatters of sharded states (FSDP, ZeRO-3): soft maximum - compute + floor.

    Forward: compute beside all-gather; backward: compute beside all-gather (when resharded) and
    reduce-scatter; a share of the traffic never hides. Without resharding weights are gathered once a step.
    Where the engine does not prefetch, all of it shows.
    Source: published FSDP step times, see assumptions; Zhao 2023 (FSDP), section 3.
    """
    known, time = problem.assumptions, problem.engine.time
    is_sharded = (plans.zero >= 3) & (plans.shard > 1)
    gather, scatter = layer_traffic(problem, plans, rank)
    gather, scatter = gather * time.gather_ratio, scatter * time.gather_ratio
    forward, again, scatters = gathers_per_step(problem, plans)
    again = again * _backward_share(rank.parts)
    if not problem.messages.prefetches:
        return np.where(is_sharded, gather * (forward + again) + scatter * scatters, 0.0)
    forward_s = rank.forward_s * forward
    ahead_s = soft_maximum(forward_s, gather * forward, known.overlap_norm) - forward_s
    backward_s = rank.backward_s * np.maximum(scatters, np.maximum(again, 1.0))
    traffic_s = gather * again + scatter * scatters
    behind_s = soft_maximum(backward_s, traffic_s, known.overlap_norm) - backward_s
    floor_s = known.overlap_floor * (gather * forward + traffic_s)
    return np.where(is_sharded, ahead_s + behind_s + floor_s, 0.0)


def gathers_per_step(problem: Problem, plans: Plans) -> tuple[F64, F64, F64]:
    """How often a step gathers weights forward and backward, and reduce-scatters gradients.

    Resharded: forward and backward of every micro-batch; otherwise once. Gradients of every micro-batch when
    the engine reduces them at once and no pipeline accumulates them.
    """
    m, one = plans.micro_batches.astype(np.float64), np.ones(len(plans))
    forward = np.where(plans.reshard == 1, m, one)
    return forward, np.where(plans.reshard == 1, m, 0.0), np.where(_is_eager(problem, plans), m, one)


def _backward_share(parts: Shards) -> F64:
    """Share of the parameters that backward gathers again: all but those without backward."""
    return np.asarray(1.0 - parts.still / np.maximum(parts.total, 1.0), np.float64)


def _is_eager(problem: Problem, plans: Plans) -> Bool:
    """Plans whose sharded gradients are reduced after every micro-batch; a pipeline reduces at its end."""
    return np.asarray(problem.engine.time.reduces_every_micro_batch & (plans.pp == 1))


def layer_traffic(problem: Problem, plans: Plans, rank: Rank) -> tuple[F64, F64]:
    """Seconds to gather all weights of the rank once, and to reduce-scatter its gradients once.

    Dense parameters over the shard group, experts over the ranks of it that hold the same ones.
    """
    parts, reduced = rank.parts, problem.engine.memory.gradient_bytes
    width = compute_bytes(plans.precision)
    dense, expert = rank.wires.sharding, rank.wires.expert_sharding
    calls = units(problem, rank)
    gather = _each(dense.gather_s, calls, width * (parts.dense + parts.ends))
    gather = gather + _each(expert.gather_s, calls, width * parts.expert)
    scatter = _each(dense.scatter_s, calls, reduced * parts.trained_dense)
    return gather, scatter + _each(expert.scatter_s, calls, reduced * parts.trained_expert)


def units(problem: Problem, rank: Rank) -> F64:
    """Layers, which are gathered and reduced one by one; and the root with both ends, if they are counted."""
    return np.asarray(rank.layer_counts.sum(axis=1) + problem.messages.counts_ends, np.float64)


def _each(seconds: Callable[[F64, F64], F64], calls: F64, payload_bytes: F64) -> F64:
    """One message a unit: latency of each, payload of all."""
    return seconds(payload_bytes, calls * (payload_bytes > 0))


def gradient_sync_s(problem: Problem, plans: Plans, rank: Rank, bubble: F64) -> F64:
    """Exposed reduction of gradients over data-parallel replicas: traffic - hidden share of backward.

    ZeRO-0 all-reduces gradients; ZeRO-1 and 2 reduce-scatter them and gather the new weights (PyTorch's
    ZeRO-1 all-reduces and then gathers); HSDP all-reduces shards between groups. ZeRO-2 and HSDP do so after
    every micro-batch where the engine reduces at once. It hides behind one micro-batch's backward (and
    forward and bubble where the engine overlaps the gather), as far as the engine was seen to, or this link
    was measured to; the last bucket has no backward left to hide behind. Replicas with local steps agree
    once in so many steps instead: `agreement_s`.
    Source: Rajbhandari 2020 (ZeRO), section 7; Li 2020 (DDP), section 3.2; torch 2.13, FSDPParamGroup
    (all_reduce_grads is on unless set_requires_all_reduce turns it off).
    """
    time = problem.engine.time
    traffic_s = replica_traffic(problem, plans, rank)
    early_s = traffic_s - last_bucket_s(problem, plans, rank)
    seen = rank.wires.replicas.hidden_share
    hidden = np.where(np.isnan(seen), time.gradient_hidden, seen)
    repeats = time.reduces_every_micro_batch & (plans.zero == 2)
    repeats = repeats | (_is_eager(problem, plans) & (plans.zero >= 3))
    window_s = rank.backward_s + np.where(
        time.gradient_window_bubble & (plans.zero >= 1), rank.forward_s, 0.0
    )
    window_s = window_s + np.where(time.gradient_window_bubble, bubble, 0.0)
    once_s = traffic_s - hidden * np.minimum(early_s, window_s)
    every_s = once_s * np.where(repeats, plans.micro_batches, 1)
    return np.where(plans.local_steps > 1, agreement_s(problem, plans, rank), every_s)


def agreement_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """What agreeing after local steps adds to each: (exposed exchanges + passes over weights) / local steps.

    Every fragment of the held weights goes as one message, which may take the seconds of the overlapped steps
    (at most those until the next fragment goes) before anybody waits. The passes are those of the outer
    Nesterov update.
    Source: Douillard 2023 (DiLoCo), algorithm 1; Douillard 2025 (Streaming DiLoCo), sections 2.2 to 2.4;
    `parallel.local_steps`.
    """
    held = locally_held(plans, rank)
    between = np.minimum(plans.local_overlap_steps, plans.local_steps / plans.local_fragments)
    hidden_s = between * (rank.forward_s + rank.backward_s) * plans.micro_batches
    late_s = np.maximum(
        difference_s(plans, rank.wires.replicas, held / plans.local_fragments) - hidden_s, 0.0
    )
    passes_s = pass_s(problem, OUTER_PASS_BYTES * held)
    return np.asarray((plans.local_fragments * late_s + passes_s) / plans.local_steps, np.float64)


def locally_held(plans: Plans, rank: Rank) -> F64:
    """Weights whose differences one rank tells: all that it trains / ranks of a shard group."""
    dense = rank.parts.trained_dense / held_ranks(plans)
    return np.asarray(dense + rank.parts.trained_expert / expert_held_ranks(plans), np.float64)


def difference_s(plans: Plans, link: Wire, weights: F64) -> F64:
    """Exchange of so many differences: fp32 and bf16 are all-reduced, int8 and fp4 gathered from all.

    The narrow ones take a scale in fp32 for each 1,024.
    """
    width = np.array([WIRE_BYTES[each] for each in LocalWire])[plans.local_wire]
    wide_s = link.reduce_s(width * weights)
    narrow_s = link.gather_s((width + SCALE_BYTES) * weights * link.ranks)
    return np.where(np.isin(plans.local_wire, NARROW), narrow_s, wide_s)


def crossover_bytes_per_s(
    plain_bytes: float, local_bytes: float, local_steps: float, hidden_s: float, passes_s: float
) -> float:
    """Link speed below which local steps pay: (plain - local / steps) / (hidden + passes / steps), in bytes.

    Plain replicas expose plain / speed - hidden seconds in each step, local ones (local / speed + passes) /
    steps; both are what one rank sends. Infinite where nothing hides and there are no passes; 0 where local
    steps send more. Source: algebra, see `gradient_sync_s` and `agreement_s`.
    """
    less_bytes, more_s = plain_bytes - local_bytes / local_steps, hidden_s + passes_s / local_steps
    if less_bytes <= 0:
        return 0.0
    return less_bytes / more_s if more_s else math.inf


def last_bucket_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """All-reduce of the bucket that is full when backward ends: what is left after the first and whole ones.

    All of the traffic where sharded replicas (HSDP) reduce without prefetch; nothing where there are no
    buckets. Source: Li 2020 (DDP), section 3.2.
    """
    known = problem.messages
    if not known.gradient_bucket_bytes:
        return np.zeros(len(plans))
    gradient_bytes = problem.engine.memory.gradient_bytes * rank.parts.trained_dense
    after_first = np.maximum(gradient_bytes - known.first_bucket_bytes, 0.0)
    whole = np.maximum(buckets(problem, gradient_bytes) - 2.0, 0.0)
    last_bytes = np.where(after_first > 0, after_first - whole * known.gradient_bucket_bytes, gradient_bytes)
    is_late = (plans.zero >= 3) & (not known.prefetches)
    last_s = rank.wires.replicas.reduce_s(last_bytes)
    return np.asarray(np.where(is_late, replica_traffic(problem, plans, rank), last_s), np.float64)


def buckets(problem: Problem, gradient_bytes: F64) -> F64:
    """Messages of one reduction: 1 + (gradients - first bucket) / bucket, rounded up; 1 without buckets."""
    known = problem.messages
    if not known.gradient_bucket_bytes:
        return np.ones_like(gradient_bytes)
    after_first = np.maximum(gradient_bytes - known.first_bucket_bytes, 0.0)
    return 1.0 + np.ceil(after_first / known.gradient_bucket_bytes)


def replica_traffic(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Seconds to reduce all gradients over replicas once, and to gather the new weights; nothing hidden."""
    dense, expert = rank.parts.trained_dense, rank.parts.trained_expert
    by_unit = units(problem, rank) if problem.messages.counts_ends else 1.0
    dense_s = _reduce(problem, plans, dense / held_ranks(plans), rank.wires.replicas, by_unit)
    expert_held = expert_held_ranks(plans)
    expert_s = _reduce(problem, plans, expert / expert_held, rank.wires.expert_replicas, by_unit)
    return dense_s + expert_s


def _reduce(problem: Problem, plans: Plans, parameters: F64, link: Wire, by_unit: F64 | float) -> F64:
    """Reduction of gradients over replicas; sharded ones are reduced unit by unit, others by bucket."""
    width = compute_bytes(plans.precision)
    gradient_bytes = problem.engine.memory.gradient_bytes * parameters
    calls = np.where(plans.zero >= 3, by_unit, buckets(problem, gradient_bytes))
    reduced_s = link.reduce_s(gradient_bytes, calls)
    scattered_s, gathered_s = link.scatter_s(gradient_bytes), link.gather_s(width * parameters)
    stored_s = link.gather_s(problem.engine.memory.weight_bytes * parameters)
    way = [reduces_whole(problem, plans), (plans.zero == 1) | (plans.zero == 2)]
    total_s = np.select(way, [reduced_s + stored_s, scattered_s + gathered_s], reduced_s)
    return np.where(parameters > 0, total_s, 0.0)


def reduces_whole(problem: Problem, plans: Plans) -> Bool:
    """Plans with ZeRO-1 of an engine that all-reduces whole gradients and then gathers the stored weights."""
    return np.asarray((plans.zero == 1) & problem.engine.time.zero_1_all_reduces)
