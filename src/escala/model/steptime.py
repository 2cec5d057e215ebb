"""Seconds of one optimizer step, term by term, of the pipeline rank that is slowest. The sum is the step.

Every field of StepTime has a function of the same name (or a layer term) whose first docstring line explains
it. Layer terms come from `layers`; here they are added over the slowest rank's layers and micro-batches.
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from escala.model.collectives import all_reduce_s, gather_s, send_s
from escala.model.columns import F64, I64, distinct, doublings, soft_maximum
from escala.model.efficiency import linear_flop_per_s, matmul_s, memory_bytes_per_s, pass_s
from escala.model.layers import LayerTime, matmul_backward_ratio
from escala.model.matmuls import Matmul
from escala.model.memory import first_of_largest, head_tokens, recompute_share, sharing
from escala.model.placement import Wire, neighbour_wire, wire
from escala.model.plan import Plans, Recompute, Schedule
from escala.model.precision import RECIPES
from escala.model.problem import Problem
from escala.model.shards import Shards, expert_replicas
from escala.model.stages import Slots

LAYER_TERMS: Final = (
    "matmul_s",
    "attention_s",
    "elementwise_s",
    "routing_s",
    "tensor_parallel_s",
    "context_parallel_s",
    "expert_parallel_s",
    "dispatch_s",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTime:
    """Seconds of one step by term, on the slowest pipeline rank; they add up to `step_s`. Shapes: (n,)."""

    matmul_s: F64
    attention_s: F64
    elementwise_s: F64
    routing_s: F64
    head_s: F64
    embedding_s: F64
    recompute_s: F64
    dispatch_s: F64
    tensor_parallel_s: F64
    context_parallel_s: F64
    expert_parallel_s: F64
    transfer_s: F64
    bubble_s: F64
    sharding_s: F64
    gradient_sync_s: F64
    accumulate_s: F64
    optimizer_s: F64
    straggler_s: F64
    overhead_s: F64

    @property
    def step_s(self) -> F64:
        """Seconds of one optimizer step: the sum of all terms."""
        return np.asarray(sum(getattr(self, term.name) for term in fields(self)), np.float64)


WIRE_COLUMNS: Final = ("dp", "tp", "pp", "cp", "ep", "etp", "zero", "shard", "placement")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepWires:
    """Links of the groups outside layers: sharding, replicas of dense and of expert parameters, stages."""

    sharding: Wire
    replicas: Wire
    expert_replicas: Wire
    stage_bytes_per_s: F64
    stage_latency_s: F64


def step_wires(problem: Problem, plans: Plans) -> StepWires:
    """Links of all groups outside layers, computed once per distinct row of the columns that place them."""
    first, group = distinct([getattr(plans, name) for name in WIRE_COLUMNS])
    few, cluster = plans.take(first), problem.cluster
    held = _held(few)
    stage_speed, stage_latency = neighbour_wire(cluster, few)
    axes = ("cp", "dp")
    return StepWires(
        sharding=wire(cluster, few, axes, few.shard).take(group),
        replicas=wire(cluster, few, axes, _replicas(few), held).take(group),
        expert_replicas=wire(cluster, few, axes, np.maximum(1, expert_replicas(few) // held), held).take(group),
        stage_bytes_per_s=stage_speed[group],
        stage_latency_s=stage_latency[group],
    )


def _held(plans: Plans) -> I64:
    """Ranks of one shard group: what lies between two replicas of the same shard."""
    return np.where((plans.zero >= 3) & (plans.shard > 1), plans.shard, 1)


def _replicas(plans: Plans) -> I64:
    """Ranks that hold the same dense parameters: all of dp x cp, or one of each shard group."""
    return np.maximum(1, plans.dp * plans.cp // _held(plans))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rank:
    """One rank of each plan (the slowest): its layers, parameters and seconds of one micro-batch."""

    layers: list[LayerTime]
    counts: F64
    parts: Shards
    forward_s: F64
    backward_s: F64
    recompute_s: F64
    head_s: F64
    embedding_s: F64
    mean_s: F64
    matmul_s: F64
    wires: StepWires


def step_time(problem: Problem, plans: Plans, pairs: Slots, parts: Shards, layers: list[LayerTime]) -> StepTime:
    """Micro-batches * slowest rank + bubble + what communication, optimizer and stragglers add."""
    rank = slowest_rank(problem, plans, pairs, parts, layers)
    busy_s = (rank.forward_s + rank.backward_s) * plans.micro_batches
    terms = {name: _over_layers(rank, plans, name) for name in LAYER_TERMS}
    terms["head_s"] = rank.head_s * plans.micro_batches
    terms["embedding_s"] = rank.embedding_s * plans.micro_batches
    terms["recompute_s"] = rank.recompute_s * plans.micro_batches
    terms["transfer_s"] = transfer_s(problem, plans, rank.wires)
    terms["bubble_s"] = bubble_s(problem, plans, rank)
    terms["sharding_s"] = sharding_s(problem, plans, rank)
    terms["gradient_sync_s"] = gradient_sync_s(problem, plans, rank, terms["bubble_s"])
    terms["accumulate_s"] = accumulate_s(problem, plans, rank)
    terms["optimizer_s"] = optimizer_s(problem, plans, rank)
    terms["straggler_s"] = straggler_s(problem, plans, busy_s)
    terms["overhead_s"] = overhead_s(problem, plans)
    return StepTime(**terms)


def slowest_rank(
    problem: Problem, plans: Plans, pairs: Slots, parts: Shards, layers: list[LayerTime]
) -> Rank:
    """The rank of each plan whose micro-batch takes longest: its layers, recompute, embedding and head."""
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
    worst = first_of_largest(total, pairs)
    mean = np.add.reduceat(total * pairs.alike, pairs.first) / np.add.reduceat(pairs.alike, pairs.first)
    return Rank(
        layers=layers,
        counts=pairs.counts[worst],
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


def _over_layers(rank: Rank, plans: Plans, name: str) -> F64:
    total = np.zeros(len(plans))
    for kind, layer in enumerate(rank.layers):
        total = total + rank.counts[:, kind] * getattr(layer, name)
    return total * plans.micro_batches


def head_s(problem: Problem, plans: Plans) -> F64:
    """Output matrix forward and backward, and passes over the logits: products + bytes per logit / memory speed.

    Tokens * hidden * outputs / TP. Source: bytes per logit from published step times, see assumptions.
    """
    total = np.zeros(len(plans))
    speed = linear_flop_per_s(problem, plans.precision, is_high=True)
    width = np.array([recipe.compute_bytes for recipe in RECIPES])[plans.precision]
    backward = 1.0 if problem.workload.is_frozen else 2.0
    for stack in problem.workload.network.stacks:
        head = stack.head
        if head is None or head.outputs == 0:
            continue
        rows = head_tokens(problem, plans, stack, head)
        ones = np.ones(len(plans))
        matmul = Matmul(rows=rows, inner=ones * stack.hidden, outer=head.outputs / plans.tp, count=ones)
        logits_bytes = problem.assumptions.loss_pass_bytes * rows * head.outputs / plans.tp
        product_s = matmul_s(problem, matmul, speed, width)
        total = total + product_s * (1.0 + backward) + pass_s(problem, logits_bytes)
    return total


def embedding_s(problem: Problem, plans: Plans) -> F64:
    """Look-up and its gradient: bytes per token and hidden element / memory speed.

    Source: assumption, see assumptions.
    """
    known, total = problem.assumptions, np.zeros(len(plans))
    for stack in problem.workload.network.stacks:
        if stack.embedding is not None:
            tokens = plans.micro_batch * float(stack.tokens or problem.workload.sequence_tokens) / plans.cp
            total = total + pass_s(problem, known.embedding_pass_bytes * tokens * stack.hidden)
    return total


def transfer_s(problem: Problem, plans: Plans, wires: StepWires) -> F64:
    """Activations between pipeline stages: 2 sends per micro-batch and chunk, (payload / wire + latency).

    Payload = tokens * hidden * 2 bytes, over TP ranks when SP is on or the engine scatters and gathers. All of
    it is exposed, since forward and backward alternate. Source: Narayanan 2021, sections 3.2 and 4.1.
    """
    known = problem.assumptions
    stack = problem.workload.network.main
    tokens = plans.micro_batch * float(stack.tokens or problem.workload.sequence_tokens) / plans.cp
    is_split = (plans.sp == 1) | problem.engine.time.splits_transfers
    payload_bytes = tokens * stack.hidden * 2.0 / np.where(is_split, plans.tp, 1)
    speed, latency = wires.stage_bytes_per_s, wires.stage_latency_s
    once_s = send_s(payload_bytes, speed * known.transfer_efficiency, latency + known.transfer_latency_s)
    hops = 2.0 * plans.micro_batches * plans.virtual_stages
    return np.where(plans.pp > 1, hops * once_s, 0.0)


def bubble_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Idle time of the pipeline: (stages - 1) / virtual stages * mean micro-batch of a rank * measured ratio.

    Zero-bubble V fills most of it with weight gradients, see `zero_bubble_s`.
    Source: Huang 2019 section 2.3; Narayanan 2021 section 2.2; ratio from published step times.
    """
    idle_s = (plans.pp - 1) / plans.virtual_stages * rank.mean_s
    filled_s = zero_bubble_s(problem, plans, rank)
    chosen_s = np.where(plans.schedule == Schedule.ZERO_BUBBLE_V, filled_s, idle_s)
    return chosen_s * problem.assumptions.bubble_ratio


def zero_bubble_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Idle time of zero-bubble V, from forward f, input gradient b and weight gradient w of one chunk.

    The largest of (pp - 1) max(f, b, 2 (b - w)), 2 pp (f + b) - 2 b - 2 m f, and 2 (pp - 1) b - 2 (m - pp) w
    when m >= pp: warm-up, too few micro-batches, weight gradients too short to fill.
    Source: Qi 2024 (controllable memory), section 4; equal to an event simulation of its V schedule within 1 %.
    """
    ratio = matmul_backward_ratio(problem)
    busy_s = rank.forward_s + rank.backward_s
    scale = np.divide(rank.mean_s, busy_s, out=np.zeros_like(busy_s), where=busy_s > 0) / 2
    weights_s = rank.matmul_s * (ratio - 1) / (ratio + 1) * scale
    f, b, w = rank.forward_s * scale, rank.backward_s * scale - weights_s, weights_s
    pp, m = plans.pp, plans.micro_batches
    warm_s = (pp - 1) * np.maximum(np.maximum(f, b), 2 * (b - w))
    short_s = 2 * pp * (f + b) - 2 * b - 2 * m * f
    unfilled_s = np.where(m >= pp, 2 * (pp - 1) * b - 2 * (m - pp) * w, 0.0)
    return np.maximum(np.maximum(warm_s, short_s), unfilled_s)


def sharding_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Exposed gathers of sharded weights and scatters of gradients (FSDP, ZeRO-3): soft maximum - compute + floor.

    Forward: compute beside all-gather; backward: compute beside all-gather (when resharded) and
    reduce-scatter; a share of the traffic never hides. Without resharding weights are gathered once a step.
    Source: published FSDP step times, see assumptions; Zhao 2023 (FSDP), section 3.
    """
    known, time = problem.assumptions, problem.engine.time
    gather, scatter = _layer_traffic(problem, plans, rank)
    gather, scatter = gather * time.gather_ratio, scatter * time.gather_ratio
    m = plans.micro_batches.astype(np.float64)
    resharded = plans.reshard == 1
    scatters = np.where(time.reduces_every_micro_batch & (plans.pp == 1), m, 1.0)
    gathers = np.where(resharded, m, 1.0)
    forward_s = rank.forward_s * gathers
    ahead_s = soft_maximum(forward_s, gather * gathers, known.overlap_norm) - forward_s
    backward_s = rank.backward_s * np.maximum(scatters, np.where(resharded, m, 1.0))
    traffic_s = np.where(resharded, gather * gathers, 0.0) + scatter * scatters
    behind_s = soft_maximum(backward_s, traffic_s, known.overlap_norm) - backward_s
    floor_s = known.overlap_floor * (gather * gathers + traffic_s)
    return np.where((plans.zero >= 3) & (plans.shard > 1), ahead_s + behind_s + floor_s, 0.0)


def _layer_traffic(problem: Problem, plans: Plans, rank: Rank) -> tuple[F64, F64]:
    """Seconds to gather all weights of the rank once, and to reduce-scatter its gradients once."""
    parts = rank.parts
    width = np.array([recipe.compute_bytes for recipe in RECIPES])[plans.precision]
    over_dense, over_expert = sharing(plans, np.arange(len(plans)))
    link = rank.wires.sharding
    latency = link.latency_s * rank.counts.sum(axis=1)
    speed = link.gather_bytes_per_s
    frozen = problem.workload.is_frozen
    whole = parts.dense + parts.ends
    gather = gather_s(width * whole, over_dense, speed, latency)
    gather = gather + gather_s(width * parts.expert, over_expert, speed, latency * (parts.expert > 0))
    reduced = problem.engine.memory.gradient_bytes
    trained = parts.trained_dense + (0.0 if frozen else parts.trained_expert * over_expert / over_dense)
    return gather, gather_s(reduced * trained, over_dense, speed, latency)


def gradient_sync_s(problem: Problem, plans: Plans, rank: Rank, bubble: F64) -> F64:
    """Exposed reduction of gradients over data-parallel replicas: traffic - hidden share of backward.

    ZeRO-0 all-reduces gradients; ZeRO-1 and 2 reduce-scatter them and gather the new weights; HSDP
    all-reduces shards between groups. It hides behind the last micro-batch's backward (and forward and bubble
    where the engine overlaps the gather). Source: Rajbhandari 2020 (ZeRO), section 7; Li 2020 (DDP).
    """
    time = problem.engine.time
    traffic_s = _replica_traffic(problem, plans, rank)
    repeats = time.reduces_every_micro_batch & (plans.zero == 2)
    window_s = rank.backward_s + np.where(time.gradient_window_bubble & (plans.zero >= 1), rank.forward_s, 0.0)
    window_s = window_s + np.where(time.gradient_window_bubble, bubble, 0.0)
    once_s = traffic_s - time.gradient_hidden * np.minimum(traffic_s, window_s)
    return once_s * np.where(repeats, plans.micro_batches, 1)


def _replica_traffic(problem: Problem, plans: Plans, rank: Rank) -> F64:
    parts, held = rank.parts, _held(plans)
    dense_s = _reduce(problem, plans, parts.trained_dense / held, rank.wires.replicas)
    expert_s = _reduce(problem, plans, parts.trained_expert / held, rank.wires.expert_replicas)
    return dense_s + expert_s


def _reduce(problem: Problem, plans: Plans, parameters: F64, link: Wire) -> F64:
    width = np.array([recipe.compute_bytes for recipe in RECIPES])[plans.precision]
    gradient_bytes = problem.engine.memory.gradient_bytes * parameters
    reduced_s = all_reduce_s(gradient_bytes, link.ranks, link.reduce_bytes_per_s, link.latency_s)
    scattered_s = gather_s(gradient_bytes, link.ranks, link.gather_bytes_per_s, link.latency_s)
    gathered_s = gather_s(width * parameters, link.ranks, link.gather_bytes_per_s, link.latency_s)
    sharded = (plans.zero == 1) | (plans.zero == 2)
    return np.where(parameters > 0, np.where(sharded, scattered_s + gathered_s, reduced_s), 0.0)


def accumulate_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Adding each micro-batch's gradients to the sum: bytes per parameter * micro-batches / memory speed.

    Source: published step times, see assumptions.
    """
    trained = rank.parts.trained_dense + rank.parts.trained_expert
    moved_bytes = problem.assumptions.accumulate_bytes * trained * plans.micro_batches
    return np.where(plans.micro_batches > 1, pass_s(problem, moved_bytes), 0.0)


def optimizer_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Optimizer step: bytes per parameter that the rank updates / memory speed.

    32 bytes for AdamW with fp32 states, less what smaller states save. Source: see assumptions.
    """
    over_dense, over_expert = sharing(plans, np.arange(len(plans)))
    sharded = plans.zero >= 1
    dense = rank.parts.trained_dense / np.where(sharded, over_dense, 1.0)
    expert = rank.parts.trained_expert / np.where(sharded, over_expert, 1.0)
    optimizer = problem.workload.optimizer
    state_bytes = 2.0 * optimizer.moments * optimizer.state_bytes
    per_parameter = problem.assumptions.optimizer_pass_bytes - 16.0 + state_bytes
    return (dense + expert) * per_parameter / memory_bytes_per_s(problem.accelerator)


def straggler_s(problem: Problem, plans: Plans, busy_s: F64) -> F64:
    """Waiting for the slowest device: busy time * share per doubling of devices beyond 8.

    Source: published weak scaling, see assumptions.
    """
    return busy_s * problem.assumptions.straggler_per_doubling * doublings(plans.devices / 8.0)


def overhead_s(problem: Problem, plans: Plans) -> F64:
    """Framework time outside layers: per step + per micro-batch.

    Source: engine record.
    """
    time = problem.engine.time
    return time.step_overhead_s + time.micro_batch_overhead_s * plans.micro_batches
