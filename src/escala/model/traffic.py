"""Seconds of communication inside a layer: tensor, context and expert parallelism, forward and backward."""

from dataclasses import dataclass, replace

import numpy as np

from escala.model.columns import F64, I64, Bool
from escala.model.lengths import dynamic_share
from escala.model.matmuls import LayerWork, Shape
from escala.model.mixers import exchanged_numbers
from escala.model.network import Attention, Block, Experts, FeedForward, Mixer, Stack
from escala.model.placement import Mesh, Wire, wire
from escala.model.plan import Compile, ContextKind, Dispatcher, Plans
from escala.model.precision import compute_bytes
from escala.model.problem import Problem
from escala.model.selection import pooled_numbers


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
    """Places in a layer where tensor ranks meet: after each attention, mixer, feed-forward and experts."""
    return sum(1 for part in block.parts if isinstance(part, (Attention, Mixer, FeedForward, Experts)))


def stream_bytes(stack: Stack, shape: Shape) -> F64:
    """The hidden stream of one micro-batch on one context rank: tokens * hidden * bytes of a number."""
    return shape.tokens * stack.hidden * shape.element_bytes


def context_bytes(part: Attention, shape: Shape) -> tuple[F64, F64]:
    """What context ranks exchange for one attention: keys and values of all ranks, or heads of one rank.

    Whole: tokens * cp * (k + v) * bytes / tp. One rank's queries, keys, values and outputs: tokens * (q + k +
    v + out) * bytes / tp, bytes of a number; of fewer key-value heads than ranks each has a copy. Of
    pooled keys only those are gathered, beside a window that is small.
    """
    key_value = part.key_value_width
    gathered = pooled_numbers(part) if part.pooled_tokens else key_value
    query_out = part.heads * (part.head_dim + part.value_head_dim)
    copies = np.maximum(shape.cp * shape.tp / part.kv_heads, 1.0)
    whole_bytes = shape.tokens * shape.cp * gathered / shape.tp * shape.element_bytes
    dealt = query_out + copies * key_value
    return whole_bytes, shape.tokens * dealt / shape.tp * shape.element_bytes


def mixer_bytes(part: Mixer, shape: Shape) -> F64:
    """What a context rank sends for one mixer: tokens * (all first maps + output) * bytes / tp."""
    return shape.tokens * exchanged_numbers(part) / shape.tp * shape.element_bytes


def tensor_parallel_s(
    problem: Problem, plans: Plans, stack: Stack, block: Block, shape: Shape, link: Wire
) -> Sides:
    """One all-reduce (or all-gather and reduce-scatter with SP) after each attention and feed-forward.

    SP gathers the input again in backward where the engine keeps a part of it: 1.25 times the traffic.
    Exposed by the engine's share, less when compiled (asynchronous TP).
    Source: Shoeybi 2019, Korthikanti 2022 section 4.2.
    """
    payload_bytes = stream_bytes(stack, shape)
    once_s = tensor_sync_s(problem, plans, payload_bytes, link) * tensor_syncs(block)
    gathered_s, pair_s = link.gather_s(payload_bytes), _pair_s(payload_bytes, link)
    again = np.divide(gathered_s, pair_s, out=np.zeros_like(pair_s), where=pair_s > 0)
    again = np.where((plans.sp == 1) & problem.messages.gathers_input_again, again, 0.0)
    return Sides(forward_s=once_s, backward_s=once_s * (1.0 + again))


def tensor_sync_s(problem: Problem, plans: Plans, payload_bytes: F64, link: Wire) -> F64:
    """Tensor ranks meet once: an all-reduce, with SP an all-gather and a reduce-scatter; what shows of it."""
    time = problem.engine.time
    exposed = np.where(plans.compile != Compile.OFF, time.compiled_tensor_exposed, time.tensor_exposed)
    return np.where(plans.sp == 1, _pair_s(payload_bytes, link), link.reduce_s(payload_bytes)) * exposed


def _pair_s(payload_bytes: F64, link: Wire) -> F64:
    return link.gather_s(payload_bytes) + link.scatter_s(payload_bytes)


def context_parallel_s(problem: Problem, plans: Plans, block: Block, shape: Shape, link: Wire) -> Sides:
    """Exchange of keys and values (ring, all-gather) or of heads (Ulysses); twice that in backward.

    Ring and all-gather move the keys and values of the other ranks; Ulysses sends queries, keys, values and
    outputs through four all-to-alls. A recurrent mixer needs all tokens of a head in order, so that its
    heads are exchanged whatever attention does. Exposed by the engine's share.
    Source: Liu 2023 (ring attention), Jacobs 2023 (Ulysses).
    """
    total_s = np.zeros(len(plans))
    for part in block.parts:
        if isinstance(part, Mixer):
            total_s = total_s + link.exchange_s(mixer_bytes(part, shape))
        if not isinstance(part, Attention):
            continue
        whole_bytes, local_bytes = context_bytes(part, shape)
        sent_s = np.where(
            plans.cp_kind == ContextKind.ULYSSES, link.exchange_s(local_bytes), link.gather_s(whole_bytes)
        )
        total_s = total_s + sent_s
    once_s = total_s * problem.engine.time.context_exposed * dynamic_share(problem, plans)
    return Sides(forward_s=once_s, backward_s=2.0 * once_s)


def expert_parallel_s(problem: Problem, plans: Plans, work: LayerWork, wires: Wires) -> Sides:
    """Two all-to-alls forward (dispatch, combine) and two backward, over the slower of both domains.

    The all-gather dispatcher gathers every rank's tokens and reduces the results instead; a fused one sends a
    token once to each rank and domain. Beyond the fast domain each rank of the group that a rank talks to
    adds a fixed time: all, or with a fused dispatcher one in each domain. Exposed by the engine's share;
    where it runs beside computation, its kernels take units of the device from that.
    Tensor ranks that hold the same tokens send them all, or a part each and gather what arrives.
    Source: Lepikhin 2020 (GShard); Singh 2023 (TED), section 5, for the duplicates; fixed time from published
    dispatcher studies, see assumptions.
    """
    link = wires.expert
    if work.dispatched_tokens is None:
        zero = np.zeros(len(plans))
        return Sides(forward_s=zero, backward_s=zero)
    token_bytes = work.routed_width * compute_bytes(plans.precision)
    sent = work.dispatched_tokens * duplicates(problem, plans)
    payload_bytes = sent * token_bytes
    leaves = link.inside < link.ranks
    more_s = np.where(leaves, problem.assumptions.expert_latency_s * link.ranks, 0.0)
    exchanged_s = link.exchange_s(payload_bytes, more_s)
    late = replace(link, latency_s=link.latency_s + more_s)
    gathered_s = late.gather_s(payload_bytes * link.ranks)
    fused_s = link.fused_exchange_s(sent / work.choices, token_bytes, work.choices, more_s / link.inside)
    way = [plans.dispatcher == Dispatcher.ALL_GATHER, plans.dispatcher == Dispatcher.FUSED]
    once_s = np.select(way, [gathered_s, fused_s], exchanged_s)
    side_s = 2.0 * once_s * shown_share(problem)
    if work.routed_tokens is not None:
        arrived_s = wires.tensor.gather_s(work.routed_tokens * token_bytes)
        side_s = side_s + np.where(gathers_arrivals(problem, plans), 2.0 * arrived_s, 0.0)
    return Sides(forward_s=side_s, backward_s=side_s)


def duplicates(problem: Problem, plans: Plans) -> F64:
    """Copies of a token that tensor ranks send: TP where they share experts and nobody drops them, else 1.

    SP leaves no duplicates; whole experts would compute them, so they are dropped there always.
    """
    kept = _same_tokens(plans) & (not problem.messages.drops_duplicates)
    return np.where(kept, plans.tp, 1).astype(np.float64)


def gathers_arrivals(problem: Problem, plans: Plans) -> Bool:
    """Plans whose tensor ranks gather what each of them received: duplicates were dropped before sending."""
    return np.asarray(_same_tokens(plans) & problem.messages.drops_duplicates, np.bool_)


def _same_tokens(plans: Plans) -> Bool:
    return np.asarray((plans.sp == 0) & (plans.etp > 1) & (plans.ep > 1), np.bool_)


def shown_share(problem: Problem) -> float:
    """Seconds of a dispatch that a step shows: the engine's share; overlapped, that * (o + (1 - o) * units).

    o is what overlap leaves; units the share of the device that kernels of the hidden part take from others.
    """
    exposed, known = problem.engine.time.expert_exposed, problem.assumptions
    if not problem.messages.overlaps_dispatch:
        return exposed
    left = known.expert_overlap_exposed
    return exposed * (left + (1.0 - left) * known.dispatch_units_share)


def arrived_numbers(plans: Plans, stack: Stack, block: Block, shape: Shape) -> F64:
    """Elements that a layer receives forward: sums of tensor ranks, tokens sent out and back, hidden each.

    Source: Singh 2023 (TED), section 5: checkpoints keep them, so that recompute sends nothing.
    """
    met = sum(isinstance(part, (Attention, FeedForward, Experts)) for part in block.parts)
    tokens = np.where(plans.tp > 1, met * shape.split_tokens, 0.0)
    for part in block.parts:
        if isinstance(part, Experts):
            routed = shape.routed_tokens(part)
            tokens = tokens + np.where(plans.ep > 1, routed + routed / (shape.etp * shape.load), 0.0)
    return tokens * stack.hidden
