"""Bytes on each device and host: by kind, by phase, the peak over phases and over pipeline ranks. No seconds.

The peak is the maximum of phases, not a sum: loss (all activations and logits), end of backward (gradients
and one layer at work), optimizer step (temporaries, no activations).
"""

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

import numpy as np

from escala.model.activations import Kept, autocasts, kept
from escala.model.allocator import group_bytes, held_bytes, stranded_loss_bytes, stranded_step_bytes
from escala.model.columns import F64, I64, Bool
from escala.model.engine import Autocast
from escala.model.host import HostBytes, host_bytes, moves, node_moved_bytes, offloaded_bytes
from escala.model.network import Head, Stack
from escala.model.plan import Compile, Offload, Plans, Recompute
from escala.model.problem import Problem
from escala.model.shards import Shards
from escala.model.stages import Slots, in_flight
from escala.model.states import (
    bucket_bytes,
    gathered_bytes,
    init_copy_bytes,
    states,
    step_bytes,
    unit_bytes,
)

NINTH_DECILE: Final = 1.2815515655446004
"""Standard deviations below which nine tenths of a normal distribution lie."""


class Verdict(IntEnum):
    """Does a plan fit on the device?"""

    FITS = 0
    RISKY = 1
    DOES_NOT_FIT = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryKinds:
    """Bytes by kind on one device, of the rank that needs most. Shapes: (n,)."""

    weights_bytes: F64
    gathered_bytes: F64
    gradients_bytes: F64
    optimizer_bytes: F64
    activations_bytes: F64
    logits_bytes: F64
    working_bytes: F64
    buckets_bytes: F64
    step_bytes: F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Phases:
    """Bytes in use by phase on one device, of the rank that needs most. Shapes: (n,)."""

    load_bytes: F64
    init_bytes: F64
    loss_bytes: F64
    backward_bytes: F64
    step_bytes: F64
    eval_bytes: F64
    save_bytes: F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """Device and host memory of each plan.

    `host_bytes` is what a node needs for its processes and all that its devices offload, `host_most_bytes`
    with pinned buffers.
    `allocated_bytes` is the peak in use; `reserved_bytes` what the caching allocator holds for it;
    `device_bytes` what nvidia-smi shows (with context). `needed_bytes` decides the verdict: allocated with
    slack and a reserve. `routing_bytes` is what a bad draw of the router adds to it. `rank` is the pipeline
    rank that needs most. Shapes: (n,).
    """

    kinds: MemoryKinds
    phases: Phases
    allocated_bytes: F64
    reserved_bytes: F64
    device_bytes: F64
    needed_bytes: F64
    routing_bytes: F64
    host_bytes: F64
    host_most_bytes: F64
    rank: F64
    device_verdict: I64
    host_verdict: I64

    @property
    def verdict(self) -> I64:
        """The worse of device and host."""
        return np.maximum(self.device_verdict, self.host_verdict)


def least_running_bytes(problem: Problem, plans: Plans, pairs: Slots, layers: list[Kept]) -> F64:
    """Checkpoints of one micro-batch (or selective activations when smaller) and the logits of every pair."""
    total, counts = logits_bytes(problem, plans, pairs), near(plans, pairs, np.ones(len(pairs.row))).counts
    for kind, layer in enumerate(layers):
        least = np.minimum(layer.checkpoint_bytes, layer.selective_bytes)
        total = total + counts[:, kind] * least[pairs.row]
    return np.asarray(total, np.float64)


def with_slack(problem: Problem, static_bytes: F64, dynamic_bytes: F64) -> F64:
    """What must be free on the device: static and dynamic bytes with the allocator's slack, and a reserve."""
    engine = problem.engine.memory
    slacked = static_bytes * (1 + engine.static_slack) + dynamic_bytes * (1 + engine.dynamic_slack)
    return np.asarray(slacked + problem.assumptions.reserve_bytes, np.float64)


def room_bytes(problem: Problem, static_bytes: F64, limit_bytes: float) -> F64:
    """What remains for dynamic bytes below a limit; the inverse of `with_slack`."""
    engine = problem.engine.memory
    left = limit_bytes - problem.assumptions.reserve_bytes - static_bytes * (1 + engine.static_slack)
    return np.asarray(left / (1 + engine.dynamic_slack), np.float64)


def memory(problem: Problem, plans: Plans, pairs: Slots, parts: Shards, layers: list[Kept]) -> Memory:
    """Peak bytes of every plan: the largest phase of the rank that needs most.

    `layers` has the kept bytes of each kind of layer, one row a plan.
    """
    kinds, phases, peak = _of_pairs(problem, plans, pairs, parts, layers)
    static = _static_bytes(problem, plans, pairs, kinds, phases, peak)
    needed = with_slack(problem, static, peak - static)
    worst = first_of_largest(needed, pairs)
    routing = routing_bytes(plans, pairs, layers, in_flight(plans, pairs)) * (phases.step_bytes < peak)
    away = _offloaded_bytes(problem, plans, pairs, parts, layers)
    moved = node_moved_bytes(problem, plans, pairs, away)
    return _assemble(problem, plans, pairs, kinds, phases, peak, needed, routing, worst, moved)


def peak_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards, layers: list[Kept]) -> F64:
    """Peak in use of every pair, the largest of its phases; `memory` has that of the rank that needs most."""
    return _of_pairs(problem, plans, pairs, parts, layers)[2]


def _of_pairs(
    problem: Problem, plans: Plans, pairs: Slots, parts: Shards, layers: list[Kept]
) -> tuple[MemoryKinds, Phases, F64]:
    flights = in_flight(plans, pairs)
    total, working = activation_bytes(plans, pairs, layers, flights)
    if problem.engine.memory.keeps_stage_outputs:
        total = total + stage_output_bytes(problem, plans, pairs, flights)
    if plans.offload_activations.any():
        total = total - offloaded_activation_bytes(plans, pairs, layers, flights)
    kinds = _kinds(problem, plans, pairs, parts, (total, working))
    phases = _phases(problem, plans, pairs, parts, kinds, flights)
    running = np.maximum(np.maximum(phases.loss_bytes, phases.backward_bytes), phases.step_bytes)
    return kinds, phases, np.maximum(running, phases.init_bytes)


def early_gradients(problem: Problem, plans: Plans) -> Bool:
    """Plans whose gradients already exist when the loss is computed: accumulated, or kept by the engine."""
    return np.asarray((plans.micro_batches > 1) | problem.engine.memory.keeps_gradients)


def _static_bytes(
    problem: Problem, plans: Plans, pairs: Slots, kinds: MemoryKinds, phases: Phases, peak: F64
) -> F64:
    """States that exist at the peak: gradients only when they came before the loss or it is not the peak."""
    without = kinds.weights_bytes + kinds.optimizer_bytes
    at_loss = (phases.loss_bytes >= peak) & ~early_gradients(problem, plans)[pairs.row]
    return np.where(at_loss, without, without + kinds.gradients_bytes)


def first_of_largest(values: F64, pairs: Slots) -> I64:
    """For every plan, the first of its pairs whose value is largest."""
    top = np.maximum.reduceat(values, pairs.first)
    index = np.where(values == top[pairs.row], np.arange(len(values)), len(values))
    return np.asarray(np.minimum.reduceat(index, pairs.first), np.int64)


def _kinds(
    problem: Problem, plans: Plans, pairs: Slots, parts: Shards, activations: tuple[F64, F64]
) -> MemoryKinds:
    return MemoryKinds(
        **states(problem, plans, pairs, parts),
        gathered_bytes=gathered_bytes(problem, plans, pairs, parts)
        + cast_bytes(problem, plans, pairs, parts),
        activations_bytes=activations[0],
        logits_bytes=logits_bytes(problem, plans, pairs),
        working_bytes=activations[1],
        buckets_bytes=bucket_bytes(problem, plans, pairs, parts),
        step_bytes=step_bytes(problem, plans, pairs, parts),
    )


def activation_bytes(plans: Plans, pairs: Slots, layers: list[Kept], flights: F64) -> tuple[F64, F64]:
    """Kept activations of all micro-batches in flight, and the working set of the layer being recomputed.

    Recomputed layers keep a checkpoint. FIRST_LAYERS recomputes that many layers of each rank, in the
    proportion of their kinds. Source: Korthikanti 2022, section 5; kept bytes from traces, see `activations`.
    """
    take = pairs.row
    recomputed = recompute_share(plans, pairs)
    selective = plans.recompute[take] == Recompute.SELECTIVE
    counts = pairs.counts
    total, working = np.zeros(len(take)), np.zeros(len(take))
    for kind, layer in enumerate(layers):
        plain = np.where(selective, layer.selective_bytes[take], layer.whole_bytes[take])
        of_layer = recomputed * layer.checkpoint_bytes[take] + (1 - recomputed) * plain
        count = counts[:, kind]
        total = total + count * of_layer
        busy = np.where((recomputed > 0) | selective, layer.working_bytes[take], 0.0)
        working = np.maximum(working, np.where(count > 0, busy, 0.0))
    return total * flights, working


def routing_bytes(plans: Plans, pairs: Slots, layers: list[Kept], flights: F64) -> F64:
    """What a bad draw of the router adds to kept activations and to the layer at work; 0 without experts.

    Source: see `loads.bad_draw_ratio`.
    """
    take, recomputed = pairs.row, recompute_share(plans, pairs)
    moved = (plans.offload_activations != Offload.NONE)[take]
    again = (recomputed > 0) | (plans.recompute[take] == Recompute.SELECTIVE)
    total, working = np.zeros(len(take)), np.zeros(len(take))
    for kind, layer in enumerate(layers):
        count = np.where(moved, np.minimum(pairs.counts[:, kind], 2.0 / flights), pairs.counts[:, kind])
        total = total + count * (1 - recomputed) * layer.routing_bytes[take]
        busy = np.where(again & (count > 0), layer.routing_working_bytes[take], 0.0)
        working = np.maximum(working, busy)
    return total * flights + working


def offloaded_activation_bytes(plans: Plans, pairs: Slots, layers: list[Kept], flights: F64) -> F64:
    """Kept activations that wait on the host: all layers but the one at work and the one being moved."""
    away = replace(pairs, counts=pairs.counts - near(plans, pairs, flights).counts)
    return activation_bytes(plans, away, layers, flights)[0]


def near(plans: Plans, pairs: Slots, flights: F64) -> Slots:
    """The layers whose activations are on the device: two of all in flight where others wait on the host."""
    moved = plans.offload_activations != Offload.NONE
    if not moved.any():
        return pairs
    few = np.minimum(pairs.counts, 2.0 / flights[:, None])
    return replace(pairs, counts=np.where(moved[pairs.row, None], few, pairs.counts))


def cast_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> F64:
    """16-bit casts of sharded fp32 weights kept for backward: 2 bytes * parameters that are not recomputed.

    Layers without backward keep none.

    Autocast caches casts of leaves alone; sharded weights are views, whose casts live as long as the
    activations of their layer. Source: PyTorch, aten/src/ATen/autocast_mode.cpp (cached_cast).
    """
    if problem.engine.memory.autocast is not Autocast.ALWAYS:
        return np.zeros(len(pairs.row))
    cast = (autocasts(problem, plans) & (plans.zero >= 3))[pairs.row]
    layers = parts.dense + parts.expert - parts.still
    kept = (1.0 - recompute_share(plans, pairs)) * layers + parts.ends
    return 2.0 * cast * kept


def stage_output_bytes(problem: Problem, plans: Plans, pairs: Slots, flights: F64) -> F64:
    """Outputs that pipeline stages keep after sending them: 2 bytes * tokens * hidden, for each in flight.

    The last stage has none. Source: engine record (DeepSpeed's pipeline keeps them for backward).
    """
    take, stack = pairs.row, problem.workload.network.main
    split = np.where(plans.sp == 1, plans.tp, 1) * plans.cp
    stream = plans.micro_batch * problem.workload.sequence_tokens * stack.streams * stack.hidden / split
    sends = (plans.pp[take] > 1) & (pairs.has_head == 0)
    return np.where(sends, 2.0 * stream[take] * flights, 0.0)


def recompute_share(plans: Plans, pairs: Slots) -> F64:
    """Share of a rank's layers that are recomputed in full."""
    mode = plans.recompute[pairs.row]
    layers = np.maximum(pairs.layers, 1.0)
    some = np.minimum(plans.recompute_layers[pairs.row], layers) / layers
    return np.where(mode == Recompute.FULL, 1.0, np.where(mode == Recompute.FIRST_LAYERS, some, 0.0))


def logits_bytes(problem: Problem, plans: Plans, pairs: Slots) -> F64:
    """Copies of the logits at the peak of the loss: bytes per logit of the loss path * tokens * outputs / TP.

    Plus 8 hidden bytes a token for the final norm, split by SP; of a traced module all that it keeps outside
    its layers, loss included. Source: traces of the loss paths, see engine records.
    """
    engine, take = problem.engine.memory, pairs.row
    compiled = plans.compile[take] != Compile.OFF
    per_logit = np.where(compiled, engine.compiled_loss_bytes, engine.loss_bytes)
    per_logit = np.where(plans.tp[take] > 1, engine.parallel_loss_bytes, per_logit)
    per_logit = np.where(plans.fused_loss[take] == 1, engine.fused_loss_bytes, per_logit)
    total = np.zeros(len(take))
    for stack in problem.workload.network.stacks:
        if stack.head is not None:
            tokens = head_tokens(problem, plans, stack, stack.head)[take]
            split = plans.tp[take]
            norm_bytes = 8.0 * stack.hidden / np.where(plans.sp[take] == 1, split, 1)
            total = total + tokens * (per_logit * stack.head.outputs / split + norm_bytes)
        if stack.outside is not None:
            total = total + kept(problem, plans, stack, stack.outside).working_bytes[take]
    return total * pairs.has_head


def head_tokens(problem: Problem, plans: Plans, stack: Stack, head: Head) -> F64:
    """Outputs of the head on one rank for one micro-batch: tokens / CP, or samples when it makes one each.

    Once more for each further token that is predicted.
    """
    samples = plans.micro_batch.astype(np.float64) * (stack.streams_per_sample * head.predictions)
    if not head.is_per_token:
        return samples
    return samples * (stack.tokens or problem.workload.sequence_tokens) / plans.cp


def _phases(
    problem: Problem, plans: Plans, pairs: Slots, parts: Shards, kinds: MemoryKinds, flights: F64
) -> Phases:
    states = kinds.weights_bytes + kinds.optimizer_bytes
    waiting = kinds.optimizer_bytes if problem.workload.optimizer.is_paged else 0.0
    early = np.where(early_gradients(problem, plans)[pairs.row], kinds.gradients_bytes, 0.0)
    running = states - waiting + kinds.gathered_bytes + kinds.buckets_bytes
    absent = 0.0 if problem.engine.memory.units_at_loss else unit_bytes(problem, plans, pairs, parts)
    loss = running - absent + early + kinds.activations_bytes + kinds.logits_bytes
    held = kinds.activations_bytes * _after_loss(pairs, flights)
    backward = running + kinds.gradients_bytes + held + kinds.working_bytes
    return Phases(
        load_bytes=kinds.weights_bytes,
        init_bytes=states + init_copy_bytes(problem, plans, pairs, parts),
        loss_bytes=loss,
        backward_bytes=backward,
        step_bytes=states + kinds.gradients_bytes + kinds.buckets_bytes + kinds.step_bytes,
        eval_bytes=running + kinds.logits_bytes,
        save_bytes=states + kinds.gradients_bytes,
    )


def _after_loss(pairs: Slots, flights: F64) -> F64:
    """Share of the activations still held when the last layers of one micro-batch have run backward.

    Without recompute one layer of the running micro-batch is free again; checkpoints stay until the end.
    """
    layers = np.maximum(pairs.layers, 1.0)
    return np.asarray(1.0 - 1.0 / (layers * np.maximum(flights, 1.0)), np.float64)


def _assemble(
    problem: Problem,
    plans: Plans,
    pairs: Slots,
    kinds: MemoryKinds,
    phases: Phases,
    peak: F64,
    needed: F64,
    routing: F64,
    worst: I64,
    moved: F64,
) -> Memory:
    own = MemoryKinds(**{name: getattr(kinds, name)[worst] for name in MemoryKinds.__slots__})
    each = Phases(**{name: getattr(phases, name)[worst] for name in Phases.__slots__})
    allocated, groups = peak[worst], group_bytes(problem, plans)
    need = needed[worst]  # buffers of collectives are in the reserve, which was fitted with them
    slacked = need - problem.assumptions.reserve_bytes
    stranded = stranded_loss_bytes(problem, plans, own.logits_bytes, each.loss_bytes >= allocated)
    stranded = stranded + stranded_step_bytes(problem, own.step_bytes, each.step_bytes >= allocated)
    held = held_bytes(problem, groups, slacked, stranded)
    host = host_bytes(problem, plans, moved)
    return Memory(
        kinds=own,
        phases=each,
        allocated_bytes=allocated,
        reserved_bytes=held.reserved_bytes,
        device_bytes=held.device_bytes,
        needed_bytes=need,
        routing_bytes=routing[worst] * (1 + problem.engine.memory.dynamic_slack),
        host_bytes=host.running_bytes,
        host_most_bytes=host.most_bytes,
        rank=pairs.rank[worst],
        device_verdict=verdict(problem, need),
        host_verdict=host_verdict(problem, host, moved),
    )


def verdict(problem: Problem, needed_bytes: F64) -> I64:
    """Fits up to a share of the capacity, risky up to another, does not fit above; see assumptions."""
    known, capacity = problem.assumptions, problem.accelerator.memory_bytes
    fits = np.where(needed_bytes > known.risky_share * capacity, Verdict.RISKY, Verdict.FITS)
    none = needed_bytes > known.full_share * capacity
    return np.where(none, Verdict.DOES_NOT_FIT, fits).astype(np.int64)


def needed_ends(problem: Problem, needed_bytes: F64, routing_bytes: F64 | float) -> tuple[F64, F64]:
    """Low and high end of the need: low * needed; needed + hypot((high - 1) * needed, bad draw of routing).

    A bad draw and the error of the formulas are independent. Source: memory_interval_low and
    memory_interval_high in assumptions; `loads.bad_draw_ratio`.
    """
    known = problem.assumptions
    plain = needed_bytes * known.memory_interval_high
    wider = needed_bytes + np.hypot(plain - needed_bytes, routing_bytes)
    high = np.where(np.asarray(routing_bytes) > 0, wider, plain)
    return needed_bytes * known.memory_interval_low, high


def out_of_memory_probability(problem: Problem, needed_bytes: F64, routing_bytes: F64 | float = 0.0) -> F64:
    """P(need > capacity) = 1 - Phi(ln(capacity / needed) / sigma), Phi of the standard normal. Shape (n,).

    sigma = ln(high) / 1.2816 where the capacity is above the predicted need, -ln(low) / 1.2816 below: a tenth
    of the runs needs less than low * needed, a tenth more than high * needed, half more than predicted. For
    plans that are shown: one erfc a row. Source: see `needed_ends`.
    """
    known = problem.assumptions
    room = np.log(problem.accelerator.memory_bytes / needed_bytes)
    wide = needed_ends(problem, needed_bytes, routing_bytes)[1] / needed_bytes
    high = np.where(np.asarray(routing_bytes) > 0, wide, known.memory_interval_high)
    end = np.where(room >= 0, high, known.memory_interval_low)
    deviations = room / np.abs(np.log(end)) * NINTH_DECILE
    return np.array([0.5 * math.erfc(each / math.sqrt(2.0)) for each in deviations], np.float64)


def host_verdict(problem: Problem, host: HostBytes, moved_bytes: F64) -> I64:
    """Does what is offloaded fit in a node's memory? Risky where buffers may not, or nobody knows it."""
    capacity = problem.cluster.host.memory_bytes
    most_bytes = np.inf if capacity is None else capacity
    is_safe = (host.most_bytes <= most_bytes) & (capacity is not None)
    found = np.where(is_safe, Verdict.FITS, Verdict.RISKY)
    found = np.where(host.running_bytes > most_bytes, Verdict.DOES_NOT_FIT, found)
    return np.where(moved_bytes > 0, found, Verdict.FITS).astype(np.int64)


def _offloaded_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards, layers: list[Kept]) -> F64:
    if not moves(plans):
        return np.zeros(len(pairs.row))
    kept = offloaded_activation_bytes(plans, pairs, layers, in_flight(plans, pairs))
    return offloaded_bytes(problem, plans, pairs, parts, kept)
