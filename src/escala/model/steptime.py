"""Seconds of one optimizer step, term by term, of the pipeline rank that is slowest. The sum is the step.

Every field of StepTime has a function of the same name (or a layer term) whose first docstring line explains
it. Layer terms come from `layers`; here they are added over the slowest rank's layers and micro-batches.
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from escala.model.columns import F64, doublings
from escala.model.distributed import (
    end_launches_s,
    launches,
    matrices,
    norm_sums,
    norms,
    update_launches_s,
)
from escala.model.efficiency import memory_bytes_per_s
from escala.model.layers import LayerTime
from escala.model.lengths import is_full, timed_shape, uneven_s
from escala.model.offload import host_update_s, offload_s, paged_s
from escala.model.orthogonal import muon_s
from escala.model.pipeline import bubble_s, transfer_s
from escala.model.plan import Offload, Plans
from escala.model.problem import Problem
from escala.model.replicas import gradient_sync_s, sharding_s
from escala.model.shards import Shards, sharing
from escala.model.slowest import Rank, added_s, slowest_rank
from escala.model.stages import Slots
from escala.model.traffic import layer_wires, stream_bytes, tensor_sync_s
from escala.model.workload import OptimizerKind

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
    offload_s: F64
    straggler_s: F64
    overhead_s: F64

    @property
    def step_s(self) -> F64:
        """Seconds of one optimizer step: the sum of all terms."""
        return np.asarray(sum(getattr(self, term.name) for term in fields(self)), np.float64)


def step_time(
    problem: Problem, plans: Plans, pairs: Slots, parts: Shards, layers: list[LayerTime]
) -> StepTime:
    """Micro-batches * slowest rank + bubble + what communication, optimizer and stragglers add."""
    rank = slowest_rank(problem, plans, pairs, parts, layers)
    busy_s = (rank.forward_s + rank.backward_s) * plans.micro_batches
    terms = {name: _over_layers(rank, plans, name) for name in LAYER_TERMS}
    terms["tensor_parallel_s"] = terms["tensor_parallel_s"] + end_syncs_s(problem, plans, rank)
    terms["tensor_parallel_s"] = terms["tensor_parallel_s"] + norm_syncs_s(problem, plans, rank)
    terms["dispatch_s"] = terms["dispatch_s"] + end_dispatch_s(problem, plans, rank)
    terms["head_s"] = rank.head_s * plans.micro_batches
    terms["embedding_s"] = rank.embedding_s * plans.micro_batches
    terms["recompute_s"] = rank.recompute_s * plans.micro_batches
    terms["transfer_s"] = transfer_s(problem, plans, rank.wires)
    terms["bubble_s"] = bubble_s(problem, plans, rank)
    terms["sharding_s"] = sharding_s(problem, plans, rank)
    terms["gradient_sync_s"] = gradient_sync_s(problem, plans, rank, terms["bubble_s"])
    terms["accumulate_s"] = accumulate_s(problem, plans, rank)
    terms["optimizer_s"] = optimizer_s(problem, plans, rank)
    terms["offload_s"] = offload_s(problem, plans, rank)
    terms["straggler_s"] = straggler_s(problem, plans, busy_s) + rank_uneven_s(problem, plans, rank)
    terms["overhead_s"] = overhead_s(problem, plans)
    return StepTime(**terms)


def rank_uneven_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Waiting for replicas with longer samples, see `lengths.uneven_s`; nothing where all rows are full."""
    if is_full(problem.workload):
        return np.zeros(len(plans))
    attention_s = _over_layers(rank, plans, "attention_s") / plans.micro_batches
    return uneven_s(problem, plans, rank.forward_s + rank.backward_s - attention_s, attention_s)


def _over_layers(rank: Rank, plans: Plans, name: str) -> F64:
    total = np.zeros(len(plans))
    for kind, layer in enumerate(rank.layers):
        total = total + rank.layer_counts[:, kind] * getattr(layer, name)
    return total * plans.micro_batches


def end_syncs_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Tensor ranks meet behind the embedding and before the head, and two or three times for the loss.

    Each end as a layer's part does, the loss with three numbers a token; where the engine's record counts
    ends. Source: Megatron-LM section 3 (Shoeybi 2019), messages of steps of PyTorch, see `distributed`.
    """
    if not problem.messages.counts_ends:
        return np.zeros(len(plans))
    stack, link = problem.workload.network.main, layer_wires(problem, plans).tensor
    shape = timed_shape(problem, plans, stack)
    once_s = tensor_sync_s(problem, plans, stream_bytes(stack, shape), link)
    known = launches(problem)
    loss_s = link.reduce_s(3.0 * shape.tokens * 4.0, 3.0 if known is None else known.loss_messages)
    has_head = rank.head_s > 0
    each_s = once_s * (has_head.astype(np.float64) + (rank.embedding_s > 0)) + np.where(has_head, loss_s, 0.0)
    return np.asarray(each_s * plans.micro_batches, np.float64)


def norm_syncs_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Tensor ranks sum the gradient of every norm under SP: an all-reduce of a hidden vector each, alone.

    Source: see `distributed.norm_sums`.
    """
    stack, link = problem.workload.network.main, layer_wires(problem, plans).tensor
    calls = _norm_vectors(problem, rank) * norm_sums(problem, plans)
    payload_bytes = calls * stack.hidden * problem.engine.memory.gradient_bytes
    return np.where(calls > 0, link.reduce_s(payload_bytes, calls), 0.0)


def end_dispatch_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Launches of embedding, head and loss as distributed tensors; see `distributed.end_launches_s`."""
    has_embedding, has_head = (np.asarray(each > 0, np.float64) for each in (rank.embedding_s, rank.head_s))
    return end_launches_s(problem, plans, has_embedding, has_head)


def _norm_vectors(problem: Problem, rank: Rank) -> F64:
    network = problem.workload.network
    last = network.main.final_norm_weights * (rank.head_s > 0)
    return np.asarray(norms(network, rank.layer_counts) + last, np.float64)


def accumulate_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Adding gradients of all micro-batches to the sum: bytes per parameter * micro-batches / memory speed.

    Source: see `slowest.added_s`.
    """
    return added_s(problem, plans.micro_batches, rank.parts) * plans.micro_batches


def optimizer_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Optimizer step: bytes per parameter that the rank updates / memory speed, or the timed seconds of each.

    Timed ones and launches, where parameters are distributed tensors. The bytes of AdamW hold two fp32
    states, read and written: 16, less what smaller states save. Muon orthogonalises its matrices besides; the
    host updates states that it holds. Source: see assumptions, `orthogonal`, `offload`.
    """
    over_dense, over_expert = sharing(plans, np.arange(len(plans)))
    sharded = plans.zero >= 1
    dense = rank.parts.trained_dense / np.where(sharded, over_dense, 1.0)
    expert = rank.parts.trained_expert / np.where(sharded, over_expert, 1.0)
    device_s = _device_update_s(problem, plans, rank, dense, expert)
    at_host = plans.offload_optimizer != Offload.NONE
    if not at_host.any() or problem.cluster.host.pcie_bytes_per_s is None:
        return device_s
    return np.where(at_host, host_update_s(problem, plans, dense + expert), device_s)


def _device_update_s(problem: Problem, plans: Plans, rank: Rank, dense: F64, expert: F64) -> F64:
    """The update on the device of so many dense weights and weights of experts."""
    optimizer, updated = problem.workload.optimizer, dense + expert
    state_bytes = 2.0 * optimizer.moments * optimizer.state_bytes
    per_parameter = problem.assumptions.optimizer_pass_bytes - 16.0 + state_bytes
    if problem.accelerator.operations is not None:
        timed_s = problem.accelerator.operations.update_s
        passes_s = updated * timed_s * (per_parameter / problem.assumptions.optimizer_pass_bytes)
        update_s = passes_s + _update_launches_s(problem, plans, rank)
    else:
        moved_bytes = updated * per_parameter
        update_s = np.asarray(moved_bytes / memory_bytes_per_s(problem.accelerator), np.float64)
    if optimizer.kind is OptimizerKind.MUON:
        return update_s + muon_s(problem, plans, rank, updated)
    return update_s + paged_s(problem, updated) if optimizer.is_paged else update_s


def _update_launches_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    ends = np.asarray((rank.embedding_s > 0) * 1.0 + (rank.head_s > 0), np.float64)
    own = matrices(problem.workload.network, rank.layer_counts) + ends
    return update_launches_s(problem, plans, own, _norm_vectors(problem, rank))


def straggler_s(problem: Problem, plans: Plans, busy_s: F64) -> F64:
    """Waiting for the slowest device: busy time * share per doubling of devices beyond 8.

    Samples of unequal length add `lengths.uneven_s`. Source: published weak scaling, see assumptions.
    """
    return busy_s * problem.assumptions.straggler_per_doubling * doublings(plans.devices / 8.0)


def overhead_s(problem: Problem, plans: Plans) -> F64:
    """Framework time outside layers: per step + per micro-batch; none where a bench timed launches.

    Source: engine record.
    """
    time = problem.engine.time
    if problem.accelerator.operations is not None:
        return np.zeros(len(plans))
    total_s = time.step_overhead_s + time.micro_batch_overhead_s * plans.micro_batches
    return np.asarray(total_s, np.float64)
