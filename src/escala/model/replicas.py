"""Seconds that data parallelism adds: gathers of sharded weights, reductions of gradients, what hides."""

import numpy as np

from escala.model.collectives import all_reduce_s, gather_s
from escala.model.columns import F64, Bool, soft_maximum
from escala.model.placement import Wire
from escala.model.plan import Plans
from escala.model.precision import compute_bytes
from escala.model.problem import Problem
from escala.model.slowest import Rank, expert_held_ranks, held_ranks


def sharding_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Exposed gathers and scatters of sharded states (FSDP, ZeRO-3): soft maximum - compute + floor.

    Forward: compute beside all-gather; backward: compute beside all-gather (when resharded) and
    reduce-scatter; a share of the traffic never hides. Without resharding weights are gathered once a step.
    Source: published FSDP step times, see assumptions; Zhao 2023 (FSDP), section 3.
    """
    known, time = problem.assumptions, problem.engine.time
    gather, scatter = _layer_traffic(problem, plans, rank)
    gather, scatter = gather * time.gather_ratio, scatter * time.gather_ratio
    forward, again, scatters = gathers_per_step(problem, plans)
    forward_s = rank.forward_s * forward
    ahead_s = soft_maximum(forward_s, gather * forward, known.overlap_norm) - forward_s
    backward_s = rank.backward_s * np.maximum(scatters, np.maximum(again, 1.0))
    traffic_s = gather * again + scatter * scatters
    behind_s = soft_maximum(backward_s, traffic_s, known.overlap_norm) - backward_s
    floor_s = known.overlap_floor * (gather * forward + traffic_s)
    return np.where((plans.zero >= 3) & (plans.shard > 1), ahead_s + behind_s + floor_s, 0.0)


def gathers_per_step(problem: Problem, plans: Plans) -> tuple[F64, F64, F64]:
    """How often a step gathers weights forward and backward, and reduce-scatters gradients.

    Resharded: forward and backward of every micro-batch; otherwise once. Gradients of every micro-batch when
    the engine reduces them at once and no pipeline accumulates them.
    """
    m, one = plans.micro_batches.astype(np.float64), np.ones(len(plans))
    forward = np.where(plans.reshard == 1, m, one)
    eager = problem.engine.time.reduces_every_micro_batch & (plans.pp == 1)
    return forward, np.where(plans.reshard == 1, m, 0.0), np.where(eager, m, one)


def _layer_traffic(problem: Problem, plans: Plans, rank: Rank) -> tuple[F64, F64]:
    """Seconds to gather all weights of the rank once, and to reduce-scatter its gradients once.

    Dense parameters over the shard group, experts over the ranks of it that hold the same ones.
    """
    parts, reduced = rank.parts, problem.engine.memory.gradient_bytes
    width = compute_bytes(plans.precision)
    dense, expert = rank.wires.sharding, rank.wires.expert_sharding
    gather = _gathered_s(rank, dense, width * (parts.dense + parts.ends))
    gather = gather + _gathered_s(rank, expert, width * parts.expert)
    scatter = _gathered_s(rank, dense, reduced * parts.trained_dense)
    return gather, scatter + _gathered_s(rank, expert, reduced * parts.trained_expert)


def _gathered_s(rank: Rank, link: Wire, payload_bytes: F64) -> F64:
    """One gather a layer: latency of each, payload of all."""
    latency_s = link.latency_s * rank.layer_counts.sum(axis=1) * (payload_bytes > 0)
    return gather_s(payload_bytes, link.ranks, link.gather_bytes_per_s, latency_s)


def gradient_sync_s(problem: Problem, plans: Plans, rank: Rank, bubble: F64) -> F64:
    """Exposed reduction of gradients over data-parallel replicas: traffic - hidden share of backward.

    ZeRO-0 all-reduces gradients; ZeRO-1 and 2 reduce-scatter them and gather the new weights (PyTorch's
    ZeRO-1 all-reduces and then gathers); HSDP all-reduces shards between groups. It hides behind the last
    micro-batch's backward (and forward and bubble where the engine overlaps the gather).
    Source: Rajbhandari 2020 (ZeRO), section 7; Li 2020 (DDP).
    """
    time = problem.engine.time
    traffic_s = _replica_traffic(problem, plans, rank)
    repeats = time.reduces_every_micro_batch & (plans.zero == 2)
    window_s = rank.backward_s + np.where(
        time.gradient_window_bubble & (plans.zero >= 1), rank.forward_s, 0.0
    )
    window_s = window_s + np.where(time.gradient_window_bubble, bubble, 0.0)
    once_s = traffic_s - time.gradient_hidden * np.minimum(traffic_s, window_s)
    return once_s * np.where(repeats, plans.micro_batches, 1)


def _replica_traffic(problem: Problem, plans: Plans, rank: Rank) -> F64:
    dense, expert = rank.parts.trained_dense, rank.parts.trained_expert
    dense_s = _reduce(problem, plans, dense / held_ranks(plans), rank.wires.replicas)
    expert_s = _reduce(problem, plans, expert / expert_held_ranks(plans), rank.wires.expert_replicas)
    return dense_s + expert_s


def _reduce(problem: Problem, plans: Plans, parameters: F64, link: Wire) -> F64:
    width = compute_bytes(plans.precision)
    gradient_bytes = problem.engine.memory.gradient_bytes * parameters
    reduced_s = all_reduce_s(gradient_bytes, link.ranks, link.reduce_bytes_per_s, link.latency_s)
    scattered_s = gather_s(gradient_bytes, link.ranks, link.gather_bytes_per_s, link.latency_s)
    gathered_s = gather_s(width * parameters, link.ranks, link.gather_bytes_per_s, link.latency_s)
    stored_bytes = problem.engine.memory.weight_bytes * parameters
    stored_s = gather_s(stored_bytes, link.ranks, link.gather_bytes_per_s, link.latency_s)
    way = [reduces_whole(problem, plans), (plans.zero == 1) | (plans.zero == 2)]
    total_s = np.select(way, [reduced_s + stored_s, scattered_s + gathered_s], reduced_s)
    return np.where(parameters > 0, total_s, 0.0)


def reduces_whole(problem: Problem, plans: Plans) -> Bool:
    """Plans with ZeRO-1 of an engine that all-reduces whole gradients and then gathers the stored weights."""
    return np.asarray((plans.zero == 1) & problem.engine.time.zero_1_all_reduces)
