"""The pipeline rank that sets the pace: its layers, parameters, seconds of a micro-batch, its links."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.cluster import Collective
from escala.model.columns import F64, I64, Bool, distinct
from escala.model.efficiency import pass_s
from escala.model.ends import embedding_s, head_s
from escala.model.layers import LayerTime
from escala.model.memory import first_of_largest, recompute_share
from escala.model.placement import Mesh, Wire, is_measured, neighbour_level, neighbour_wire, wire
from escala.model.plan import Plans, Recompute
from escala.model.problem import Problem
from escala.model.shards import Shards, expert_replicas, expert_shard
from escala.model.stages import Slots

WIRE_COLUMNS: Final = ("dp", "tp", "pp", "cp", "ep", "etp", "zero", "shard", "placement")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepWires:
    """Links of the groups outside layers: sharding, replicas of dense and of expert parameters, stages.

    Speed and latency of an exchange count only where `exchange_is_measured`.
    """

    sharding: Wire
    expert_sharding: Wire
    replicas: Wire
    expert_replicas: Wire
    stage_bytes_per_s: F64
    stage_latency_s: F64
    stage_is_measured: Bool
    exchange_bytes_per_s: F64
    exchange_latency_s: F64
    exchange_is_measured: Bool
    stage_level: I64


def step_wires(problem: Problem, plans: Plans) -> StepWires:
    """Links of all groups outside layers, computed once per distinct row of the columns that place them."""
    first, group = distinct([getattr(plans, name) for name in WIRE_COLUMNS])
    few = plans.take(first)
    mesh = Mesh.of(problem.cluster, few)
    held, expert_held = held_ranks(few), expert_held_ranks(few)
    stage_level = neighbour_level(mesh)
    stage_speed, stage_latency = neighbour_wire(mesh, stage_level)
    exchange_speed, exchange_latency = neighbour_wire(mesh, stage_level, Collective.EXCHANGE)
    axes, expert_axes = ("cp", "dp"), ("tp", "cp", "dp")
    # ranks with the same experts lie ep x etp apart
    apart, copies = few.ep * few.etp, np.maximum(1, expert_replicas(few) // expert_held)
    return StepWires(
        sharding=wire(mesh, axes, few.shard).take(group),
        expert_sharding=wire(mesh, expert_axes, expert_shard(few), apart).take(group),
        replicas=wire(mesh, axes, replica_ranks(few), held).take(group),
        expert_replicas=wire(mesh, expert_axes, copies, apart * expert_held).take(group),
        stage_bytes_per_s=stage_speed[group],
        stage_latency_s=stage_latency[group],
        stage_is_measured=is_measured(problem.cluster, stage_level, Collective.SEND)[group],
        exchange_bytes_per_s=exchange_speed[group],
        exchange_latency_s=exchange_latency[group],
        exchange_is_measured=is_measured(problem.cluster, stage_level, Collective.EXCHANGE)[group],
        stage_level=stage_level[group],
    )


def held_ranks(plans: Plans) -> I64:
    """Ranks of one shard group: what lies between two replicas of the same shard."""
    return np.asarray(np.where((plans.zero >= 3) & (plans.shard > 1), plans.shard, 1), np.int64)


def expert_held_ranks(plans: Plans) -> I64:
    """Ranks of one shard group of experts: what lies between two replicas of the same shard."""
    return np.asarray(np.where(plans.zero >= 3, expert_shard(plans), 1), np.int64)


def replica_ranks(plans: Plans) -> I64:
    """Ranks that hold the same dense parameters: all of dp x cp, or one of each shard group."""
    return np.asarray(np.maximum(1, plans.dp * plans.cp // held_ranks(plans)), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rank:
    """One rank of each plan (the slowest): its layers, parameters and seconds of one micro-batch."""

    layers: list[LayerTime]
    layer_counts: F64
    parts: Shards
    forward_s: F64
    backward_s: F64
    recompute_s: F64
    head_s: F64
    embedding_s: F64
    mean_s: F64
    matmul_s: F64
    wires: StepWires


def added_s(problem: Problem, micro_batches: I64, parts: Shards) -> F64:
    """Adding the gradients of one micro-batch to the sum: bytes per parameter / memory speed.

    Times the share that shows where the engine adds inside the products; nothing when there is one
    micro-batch. Source: published step times, see assumptions.
    """
    per_parameter = problem.assumptions.accumulate_bytes * problem.engine.time.accumulation_exposed
    trained = parts.trained_dense + parts.trained_expert
    return np.where(micro_batches > 1, pass_s(problem, per_parameter * trained), 0.0)


def slowest_rank(
    problem: Problem, plans: Plans, pairs: Slots, parts: Shards, layers: list[LayerTime]
) -> Rank:
    """The rank of each plan whose micro-batch takes longest: layers, recompute, ends, gradients to add."""
    take = pairs.row
    head, embedding = head_s(problem, plans)[take], embedding_s(problem, plans)[take]
    zero = np.zeros(len(take))
    forward, backward, extra, products = zero, zero, zero, zero
    share = recompute_share(plans, pairs)
    selective = plans.recompute[take] == Recompute.SELECTIVE
    for kind, layer in enumerate(layers):
        count = pairs.counts[:, kind]
        forward = forward + count * layer.forward_s[take]
        backward = backward + count * layer.backward_s[take]
        products = products + count * layer.matmul_s[take]
        again = share * layer.recompute_full_s[take] + selective * layer.recompute_selective_s[take]
        extra = extra + count * again
    ends = pairs.has_head * head + pairs.has_embedding * embedding
    total = forward + backward + extra + ends
    worst = first_of_largest(total + added_s(problem, plans.micro_batches[take], parts), pairs)
    mean = np.add.reduceat(total * pairs.alike, pairs.first) / np.add.reduceat(pairs.alike, pairs.first)
    return Rank(
        layers=layers,
        layer_counts=pairs.counts[worst],
        parts=Shards(**{name: getattr(parts, name)[worst] for name in Shards.__slots__}),
        forward_s=forward[worst] + ends[worst] / 3,
        backward_s=(backward + extra)[worst] + ends[worst] * 2 / 3,
        recompute_s=extra[worst],
        head_s=(pairs.has_head * head)[worst],
        embedding_s=(pairs.has_embedding * embedding)[worst],
        mean_s=mean,
        matmul_s=products[worst],
        wires=step_wires(problem, plans),
    )
