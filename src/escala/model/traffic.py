"""Seconds of communication inside a layer: tensor, context and expert parallelism, forward and backward."""

from dataclasses import dataclass

import numpy as np

from escala.model.collectives import all_reduce_s, all_to_all_s, gather_s
from escala.model.columns import F64, I64
from escala.model.matmuls import LayerWork, Shape
from escala.model.network import Attention, Block, Experts, FeedForward, Stack
from escala.model.placement import Mesh, Wire, wire
from escala.model.plan import Compile, ContextKind, Dispatcher, Plans
from escala.model.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sides:
    """Seconds of one kind of work, forward and backward."""

    forward_s: F64
    backward_s: F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wires:
    """Links that the groups inside a layer find."""

    tensor: Wire
    context: Wire
    expert: Wire

    def take(self, rows: I64) -> "Wires":
        """The links of the given rows."""
        return Wires(**{name: getattr(self, name).take(rows) for name in Wires.__slots__})


def layer_wires(problem: Problem, plans: Plans) -> Wires:
    """Links of the tensor, context and expert groups; experts spread over tp / etp, then cp, then dp."""
    mesh = Mesh.of(problem.cluster, plans)
    return Wires(
        tensor=wire(mesh, ("tp",), plans.tp),
        context=wire(mesh, ("cp",), plans.cp),
        expert=wire(mesh, ("tp", "cp", "dp"), plans.ep, plans.etp),
    )


def tensor_syncs(block: Block) -> int:
    """Places in a layer where tensor ranks meet: after each attention, feed-forward and experts."""
    return sum(1 for part in block.parts if isinstance(part, (Attention, FeedForward, Experts)))


def stream_bytes(stack: Stack, shape: Shape) -> F64:
    """The hidden stream of one micro-batch on one context rank, in 16 bit: tokens * hidden * 2."""
    return shape.tokens * stack.hidden * 2.0


def context_bytes(part: Attention, shape: Shape) -> tuple[F64, F64]:
    """What context ranks exchange for one attention: keys and values of all ranks, or heads of one rank.

    Whole: tokens * cp * (k + v) * 2 / tp. One rank's queries, keys, values and outputs: tokens * (q + k + v +
    out) * 2 / tp.
    """
    key_value = part.kv_heads * (part.head_dim + part.value_head_dim)
    query_out = part.heads * (part.head_dim + part.value_head_dim)
    whole_bytes = shape.tokens * shape.cp * key_value / shape.tp * 2.0
    return whole_bytes, shape.tokens * (query_out + key_value) / shape.tp * 2.0


def tensor_parallel_s(
    problem: Problem, plans: Plans, stack: Stack, block: Block, shape: Shape, link: Wire
) -> Sides:
    """One all-reduce (or all-gather and reduce-scatter with SP) after each attention and feed-forward.

    SP gathers the input again in backward: 1.25 times the traffic. Exposed by the engine's share, less when
    compiled (asynchronous TP). Source: Shoeybi 2019, Korthikanti 2022 section 4.2.
    """
    syncs, payload_bytes = tensor_syncs(block), stream_bytes(stack, shape)
    reduced_s = all_reduce_s(payload_bytes, link.ranks, link.reduce_bytes_per_s, link.latency_s)
    gathered_s = 2.0 * gather_s(payload_bytes, link.ranks, link.gather_bytes_per_s, link.latency_s)
    time = problem.engine.time
    exposed = np.where(plans.compile != Compile.OFF, time.compiled_tensor_exposed, time.tensor_exposed)
    once_s = np.where(plans.sp == 1, gathered_s, reduced_s) * syncs * exposed
    return Sides(forward_s=once_s, backward_s=once_s * np.where(plans.sp == 1, 1.5, 1.0))


def context_parallel_s(problem: Problem, plans: Plans, block: Block, shape: Shape, link: Wire) -> Sides:
    """Exchange of keys and values (ring, all-gather) or of heads (Ulysses); twice that in backward.

    Ring and all-gather move the keys and values of the other ranks; Ulysses sends queries, keys, values and
    outputs through four all-to-alls. Exposed by the engine's share.
    Source: Liu 2023 (ring attention), Jacobs 2023 (Ulysses).
    """
    total_s = np.zeros(len(plans))
    for part in block.parts:
        if not isinstance(part, Attention):
            continue
        whole_bytes, local_bytes = context_bytes(part, shape)
        gathered_s = gather_s(whole_bytes, link.ranks, link.gather_bytes_per_s, link.latency_s)
        sent_s = all_to_all_s(
            local_bytes, link.ranks, link.inside, link.fast_bytes_per_s, link.slow_bytes_per_s, link.latency_s
        )
        total_s = total_s + np.where(plans.cp_kind == ContextKind.ULYSSES, sent_s, gathered_s)
    once_s = total_s * problem.engine.time.context_exposed
    return Sides(forward_s=once_s, backward_s=2.0 * once_s)


def expert_parallel_s(problem: Problem, plans: Plans, stack: Stack, work: LayerWork, link: Wire) -> Sides:
    """Two all-to-alls forward (dispatch, combine) and two backward, over the slower of both domains.

    The all-gather dispatcher gathers every rank's tokens and reduces the results instead. Beyond the fast
    domain each rank of the group adds a fixed time. Exposed by the engine's share.
    Source: Lepikhin 2020 (GShard); fixed time from published dispatcher studies, see assumptions.
    """
    if work.dispatched_tokens is None:
        zero = np.zeros(len(plans))
        return Sides(forward_s=zero, backward_s=zero)
    payload_bytes = work.dispatched_tokens * stack.hidden * 2.0
    leaves = link.inside < link.ranks
    latency_s = link.latency_s + np.where(leaves, problem.assumptions.expert_latency_s * link.ranks, 0.0)
    exchanged_s = all_to_all_s(
        payload_bytes, link.ranks, link.inside, link.fast_bytes_per_s, link.slow_bytes_per_s, latency_s
    )
    gathered_s = gather_s(payload_bytes * link.ranks, link.ranks, link.gather_bytes_per_s, latency_s)
    once_s = np.where(plans.dispatcher == Dispatcher.ALL_GATHER, gathered_s, exchanged_s)
    side_s = 2.0 * once_s * problem.engine.time.expert_exposed
    return Sides(forward_s=side_s, backward_s=side_s)
