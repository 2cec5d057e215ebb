"""What a step has to do and to move: FLOP of all devices, bytes that one device sends, by kind and by link.

Bytes are those of the slowest pipeline rank, before any overlap; each kind is attributed to the outermost
link level that its group crosses.
"""

from dataclasses import dataclass, fields

import numpy as np

from escala.model.collectives import gather_wire_bytes
from escala.model.columns import F64, I64
from escala.model.flops import hardware_flop, model_flop
from escala.model.lengths import timed_shape
from escala.model.matmuls import Shape, layer_work
from escala.model.network import Attention, Learning, Mixer
from escala.model.pipeline import sent_bytes
from escala.model.placement import Wire
from escala.model.plan import ContextKind, Plans, Recompute
from escala.model.precision import compute_bytes
from escala.model.problem import Problem
from escala.model.replicas import gathers_per_step, reduces_whole
from escala.model.shards import sharing
from escala.model.slowest import Rank, expert_held_ranks, held_ranks
from escala.model.stages import kinds
from escala.model.traffic import Wires, context_bytes, duplicates, mixer_bytes, stream_bytes, tensor_syncs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sent:
    """Bytes that one device sends in a step, by kind. Shapes: (n,)."""

    tensor_bytes: F64
    context_bytes: F64
    expert_bytes: F64
    transfer_bytes: F64
    sharding_bytes: F64
    gradient_bytes: F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """FLOP of one step over all devices, bytes that one device sends, the link level of each kind."""

    model_flop: F64
    hardware_flop: F64
    sent: Sent
    levels: dict[str, I64]

    def by_link(self, links: int) -> F64:
        """Bytes that one device sends over each link level. Shape (n, links)."""
        total = np.zeros((len(self.model_flop), links))
        rows = np.arange(len(total))
        for field in fields(self.sent):
            np.add.at(total, (rows, self.levels[field.name]), getattr(self.sent, field.name))
        return total


def work(problem: Problem, plans: Plans, rank: Rank, wires: Wires) -> Work:
    """FLOP and bytes of every plan, on its slowest rank."""
    inside = _inside_layers(problem, plans, rank, wires)
    outside = rank.wires
    return Work(
        model_flop=np.full(len(plans), model_flop(problem.workload)),
        hardware_flop=hardware_flop(problem.workload, plans),
        sent=Sent(
            **inside,
            transfer_bytes=transfer_bytes(problem, plans),
            sharding_bytes=sharding_bytes(problem, plans, rank),
            gradient_bytes=gradient_bytes(problem, plans, rank),
        ),
        levels={
            "tensor_bytes": wires.tensor.level,
            "context_bytes": wires.context.level,
            "expert_bytes": wires.expert.level,
            "transfer_bytes": outside.stage_level,
            "sharding_bytes": outside.sharding.level,
            "gradient_bytes": outside.replicas.level,
        },
    )


def _inside_layers(problem: Problem, plans: Plans, rank: Rank, wires: Wires) -> dict[str, F64]:
    """Traffic of all layers of the rank and all micro-batches, forward, backward and recomputed."""
    zero = np.zeros(len(plans))
    total = {"tensor_bytes": zero, "context_bytes": zero, "expert_bytes": zero}
    layers = np.maximum(rank.layer_counts.sum(axis=1), 1.0)
    some = np.minimum(plans.recompute_layers, layers) / layers
    again = np.where(plans.recompute == Recompute.FIRST_LAYERS, some, 0.0)
    again = np.where(plans.recompute == Recompute.FULL, 1.0, again)
    repeats = float(problem.messages.repeats_messages)
    for kind, (stack, block) in enumerate(kinds(problem.workload.network)):
        shape = timed_shape(problem, plans, stack)
        runs = rank.layer_counts[:, kind] * plans.micro_batches
        stream = 2 * gather_wire_bytes(stream_bytes(stack, shape), wires.tensor.ranks) * tensor_syncs(block)
        back = 0.0 if block.learning is Learning.STILL else 1.0
        passes = np.where(plans.sp == 1, 1.5, 1.0) * back + 1.0 + again * repeats * back
        total["tensor_bytes"] = total["tensor_bytes"] + runs * stream * passes
        for part in block.parts:
            if isinstance(part, (Attention, Mixer)):
                sent = _context(plans, part, shape, wires.context)
                total["context_bytes"] = total["context_bytes"] + runs * sent * (1.0 + (2.0 + again) * back)
        own = layer_work(block, stack, shape)
        if own.dispatched_tokens is not None:
            routed = own.dispatched_tokens * own.routed_width * duplicates(problem, plans)
            sent = gather_wire_bytes(routed * 2.0, wires.expert.ranks)
            dispatches = 2.0 + (2.0 + 2.0 * again * repeats) * back
            total["expert_bytes"] = total["expert_bytes"] + runs * sent * dispatches
    return total


def _context(plans: Plans, part: Attention | Mixer, shape: Shape, link: Wire) -> F64:
    if isinstance(part, Mixer):
        return gather_wire_bytes(mixer_bytes(part, shape), link.ranks)
    whole, local = context_bytes(part, shape)
    return gather_wire_bytes(np.where(plans.cp_kind == ContextKind.ULYSSES, local, whole), link.ranks)


def transfer_bytes(problem: Problem, plans: Plans) -> F64:
    """Activations to the next stage and gradients to the one before: 2 * micro-batches * chunks * payload."""
    payload = sent_bytes(problem, plans)
    return np.where(plans.pp > 1, 2.0 * plans.micro_batches * plans.virtual_stages * payload, 0.0)


def sharding_bytes(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Gathers of weights and reduce-scatters of gradients, as often as a step makes them."""
    parts = rank.parts
    over_dense, over_expert = sharing(plans, np.arange(len(plans)))
    width = compute_bytes(plans.precision)
    gathered = gather_wire_bytes(width * (parts.dense + parts.ends), over_dense)
    gathered = gathered + gather_wire_bytes(width * parts.expert, over_expert)
    scattered = gather_wire_bytes(problem.engine.memory.gradient_bytes * parts.trained_dense, over_dense)
    scattered = scattered + gather_wire_bytes(
        problem.engine.memory.gradient_bytes * parts.trained_expert, over_expert
    )
    forward, backward, scatters = gathers_per_step(problem, plans)
    sent = gathered * (forward + backward) + scattered * scatters
    return np.where((plans.zero >= 3) & (plans.shard > 1), sent, 0.0)


def gradient_bytes(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Reduction of gradients over replicas, and with ZeRO-1 and 2 the gather of the new weights."""
    held, engine = held_ranks(plans), problem.engine
    width = compute_bytes(plans.precision)
    sharded = (plans.zero == 1) | (plans.zero == 2)
    reduced = engine.memory.gradient_bytes
    way = [reduces_whole(problem, plans), sharded]
    per_parameter = reduced + np.select(way, [reduced + engine.memory.weight_bytes, width], reduced)
    dense = gather_wire_bytes(per_parameter * rank.parts.trained_dense / held, rank.wires.replicas.ranks)
    expert = gather_wire_bytes(
        per_parameter * rank.parts.trained_expert / expert_held_ranks(plans),
        rank.wires.expert_replicas.ranks,
    )
    repeats = engine.time.reduces_every_micro_batch & (plans.zero == 2)
    return (dense + expert) * np.where(repeats, plans.micro_batches, 1)
