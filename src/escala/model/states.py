"""Bytes of weights, gradients, optimizer state and of what sharding gathers, on one rank of every slot."""

from typing import Final

import numpy as np

from escala.model.activations import autocasts
from escala.model.columns import F64, Bool
from escala.model.engine import Gathering
from escala.model.plan import Offload, OptimizerStep, Plans
from escala.model.precision import compute_bytes
from escala.model.problem import Problem
from escala.model.shards import Shards, base_weight_bytes, largest_matrix, sharing
from escala.model.stages import Slots
from escala.model.updates import moment_bytes, orthogonal_bytes, sees_matrices
from escala.model.workload import Method, OptimizerKind

STATE_COLUMNS: Final = (
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "zero",
    "reshard",
    "shard",
    "precision",
    "offload_optimizer",
    "offload_params",
    "optimizer_step",
    "local_steps",
    "local_fragments",
    "local_overlap_steps",
)
AGREED_BYTES: Final = 8.0
"""Of each weight that a replica with local steps holds: the agreed weight and the outer momentum, in fp32."""
TRAVELLING_BYTES: Final = 4.0
"""Of each weight of the fragment that travels while the replicas train on: its difference in fp32."""


def state_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> tuple[F64, F64]:
    """Weights, optimizer state and gradients: engine bytes per parameter / ranks that share them.

    Two columns, gradients apart; paged states give way and count as none.
    Shapes (pairs,). Source: Rajbhandari 2020 (ZeRO), section 3; engine records.
    """
    held = states(problem, plans, pairs, parts)
    lasting = held["weights_bytes"]
    lasting = lasting if problem.workload.optimizer.is_paged else lasting + held["optimizer_bytes"]
    return lasting, held["gradients_bytes"]


def per_rank(plans: Plans, pairs: Slots, dense: F64, expert: F64, from_stage: int) -> F64:
    """Parameters on one rank when the given kind of state is sharded from this ZeRO stage on."""
    over_dense, over_expert = sharing(plans, pairs.row)
    is_sharded = plans.zero[pairs.row] >= from_stage
    return np.where(is_sharded, dense / over_dense + expert / over_expert, dense + expert)


def states(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> dict[str, F64]:
    """Weights, gradients, optimizer state on the device: engine bytes per parameter / ranks that share.

    What is offloaded is not there: weights, or optimizer states with the gradients that they take.
    """
    found, take = whole_states(problem, plans, pairs, parts), pairs.row
    at_host = plans.offload_optimizer[take] != Offload.NONE
    moved = {
        "weights_bytes": plans.offload_params[take] != Offload.NONE,
        # ZeRO-1 reduces whole gradients, which wait on the device
        "gradients_bytes": at_host & (plans.zero[take] != 1),
        "optimizer_bytes": at_host,
    }
    return {name: np.where(moved[name], 0.0, held) for name, held in found.items()}


def whole_states(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> dict[str, F64]:
    """Weights, gradients and optimizer state of a rank, wherever they lie."""
    engine, optimizer = problem.engine.memory, problem.workload.optimizer
    frozen_bytes = base_weight_bytes(problem.workload)
    whole_dense = parts.dense + parts.ends
    inner, outer = weight_bytes(problem)
    weights = inner * per_rank(plans, pairs, whole_dense, parts.expert, 3)
    if outer != inner:
        none = np.zeros(len(parts.ends))
        weights = weights + (outer - inner) * per_rank(plans, pairs, parts.ends, none, 3)
    trained = parts.trained_dense, parts.trained_expert
    gradient_bytes, state_bytes = engine.gradient_bytes, engine.master_bytes
    added_bytes = problem.workload.adapter_bytes
    if frozen_bytes is not None and added_bytes is not None:
        weights = weights + added_bytes * per_rank(plans, pairs, *trained, 3)
        gradient_bytes, state_bytes = added_bytes, 0.0
    updated = per_rank(plans, pairs, *trained, 1)
    if sees_matrices(problem):
        state = state_bytes * updated + moment_bytes(problem, plans, pairs, updated)
    else:
        state = (state_bytes + optimizer.moments * optimizer.state_bytes) * updated
    state = state + agreed_bytes(plans)[pairs.row] * per_rank(plans, pairs, *trained, 3)
    cached = (autocasts(problem, plans) & (plans.zero < 3))[pairs.row]
    autocast = (
        2.0 * cached * (parts.trained_dense + parts.trained_expert)
    )  # casts of frozen ones are not kept
    return {
        "weights_bytes": weights + autocast,
        "gradients_bytes": gradient_bytes * _gradient_parameters(problem, plans, pairs, parts),
        "optimizer_bytes": state,
    }


def agreed_bytes(plans: Plans) -> F64:
    """Of each held weight with local steps: agreed weight and outer momentum, and what travels meanwhile."""
    travelling = TRAVELLING_BYTES / plans.local_fragments * (plans.local_overlap_steps > 0)
    return np.where(plans.local_steps > 1, AGREED_BYTES + travelling, 0.0)


def weight_bytes(problem: Problem) -> tuple[float, float]:
    """Bytes of a stored weight of the layers, and of embedding and head.

    Quantisation leaves embedding and head in 16 bit, but for the share that the engine quantises as well.
    """
    frozen_bytes = base_weight_bytes(problem.workload)
    if frozen_bytes is None:
        return problem.engine.memory.weight_bytes, problem.engine.memory.weight_bytes
    share = problem.engine.memory.quantised_ends_share
    return frozen_bytes, share * frozen_bytes + (1 - share) * 2.0


def _gradient_parameters(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> F64:
    """Gradients on one rank: sharded from ZeRO-2 on, but whole while a pipeline accumulates them locally.

    A step inside backward leaves those of one layer: the share of the largest.
    """
    trained = parts.trained_dense, parts.trained_expert
    sharded = per_rank(plans, pairs, *trained, 2)
    waits = keeps_whole_gradients(problem, plans)[pairs.row]
    all_of_them = np.where(waits, parts.trained_dense + parts.trained_expert, sharded)
    is_early = (plans.optimizer_step == OptimizerStep.IN_BACKWARD)[pairs.row]
    return np.where(is_early, _of_largest(all_of_them, parts), all_of_them)


def _of_largest(values: F64, parts: Shards) -> F64:
    """The part of the largest layer, or of the ends where these are larger."""
    largest = np.maximum(parts.largest, parts.ends)
    return np.asarray(values * np.minimum(largest / np.maximum(parts.total, 1.0), 1.0), np.float64)


def keeps_whole_gradients(problem: Problem, plans: Plans) -> Bool:
    """Plans whose pipeline accumulates gradients before it scatters them: layer-wise sharding, pp above 1."""
    return np.asarray((plans.pp > 1) & (problem.engine.memory.gathering is Gathering.LAYERS))


def gathered_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> F64:
    """Weights gathered by sharding: one or all layers, the ends all step long, reduce units in backward.

    Layer-wise: resharded 10 bytes * largest layer (current, prefetched, 16-bit gradients, fp32 reduce input)
    + 2 * ends; without resharding 2 * all weights + 6 * largest layer. Sub-groups: the live parameters.
    Matrices: 10 bytes * largest matrix, or half of the ends. Source: traces of FSDP2 in torch 2.13; for
    matrices the partitioner of XLA, which gathers each operand where it is used.
    """
    engine, take = problem.engine.memory, pairs.row
    width = compute_bytes(plans.precision[take])
    if problem.workload.is_frozen:
        width = np.minimum(width, base_weight_bytes(problem.workload) or width)
    if engine.gathering is Gathering.SUBGROUPS:
        held = width * np.minimum(engine.live_parameters, parts.total)
        return np.where(plans.zero[take] >= 3, held, 0.0)
    if engine.gathering is Gathering.MATRICES:
        reduced = _reduced_bytes(problem, parts)
        resharded = (2 * width + reduced) * np.maximum(
            largest_matrix(problem.workload.network, plans)[take], parts.ends / 2
        )
        whole = width * parts.total + reduced * parts.largest
    else:
        unit = unit_bytes(problem, plans, pairs, parts)
        resharded = unit + width * parts.ends
        whole = width * parts.total + unit
    held = np.where(streams(plans)[take], np.where(plans.reshard[take] == 1, resharded, whole), 0.0)
    is_quantised = problem.workload.method is Method.QLORA
    return held + dequantised_bytes(problem, plans)[take] if is_quantised else held


def unit_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> F64:
    """The layer at work, gathered: 10 bytes * largest layer when resharded, else 6; 0 where none is sharded.

    Current and prefetched weights, 16-bit gradients and the fp32 input of their reduce-scatter.
    Source: traces of FSDP2 in torch 2.13.
    """
    engine, take = problem.engine.memory, pairs.row
    width = compute_bytes(plans.precision[take])
    if problem.workload.is_frozen:
        width = np.minimum(width, base_weight_bytes(problem.workload) or width)
    reduced = _reduced_bytes(problem, parts)
    is_sharded = streams(plans)[take] & (engine.gathering is Gathering.LAYERS)
    return np.where(
        is_sharded, (np.where(plans.reshard[take] == 1, 2 * width, 0.0) + reduced) * parts.largest, 0.0
    )


def _reduced_bytes(problem: Problem, parts: Shards) -> F64 | float:
    """Bytes of the reduce unit for each parameter of the largest layer, as far as layers are trained."""
    if problem.workload.is_frozen:
        return 0.0
    share = np.divide(
        parts.largest_trained, parts.largest, out=np.ones_like(parts.largest), where=parts.largest > 0
    )
    return problem.engine.memory.gathered_in_backward_bytes * share


def streams(plans: Plans) -> Bool:
    """Plans whose weights come when they are needed: from other ranks, or from the host."""
    return np.asarray((plans.zero >= 3) & ((plans.shard > 1) | (plans.offload_params != Offload.NONE)))


def dequantised_bytes(problem: Problem, plans: Plans) -> F64:
    """The largest quantised matrix in 16 bit, 2 bytes a parameter; the head where the engine quantises it.

    Source: traces of 4-bit linear maps of bitsandbytes 0.50, which restore one weight at a time.
    """
    network = problem.workload.network
    heads = [stack.hidden * stack.head.outputs for stack in network.stacks if stack.head is not None]
    head = max(heads, default=0) if problem.engine.memory.quantised_ends_share else 0
    return 2.0 * np.maximum(largest_matrix(network, plans), head)


def bucket_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> F64:
    """Buckets of gradients: engine bytes * min(bucket, parameters), when ranks share gradients.

    Source: engine record (DeepSpeed's reduce and gather buckets of 5e8; DDP holds every gradient again).
    """
    engine, take = problem.engine.memory, pairs.row
    trained = parts.trained_dense + parts.trained_expert
    shared = (plans.dp * plans.cp)[take] > 1
    layerwise = (plans.zero[take] >= 3) & (engine.gathering is Gathering.LAYERS)
    held = engine.bucket_bytes * np.minimum(engine.bucket_parameters, trained)
    return np.where(shared & ~layerwise, held, 0.0)


def step_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> F64:
    """Temporaries of the optimizer step: engine bytes per parameter that the rank updates at once.

    A tiled step updates a tile, one inside backward a layer; Muon has whole matrices besides.
    Source: traces of foreach and fused AdamW, see engine records; Singh 2023 (TED), section 4.
    """
    engine, take = problem.engine.memory, pairs.row
    updated = per_rank(plans, pairs, parts.trained_dense, parts.trained_expert, 1)
    step, tile = plans.optimizer_step[take], problem.assumptions.step_tile_parameters
    at_once = np.where(step == OptimizerStep.TILED, np.minimum(updated, tile), updated)
    at_once = np.where(step == OptimizerStep.IN_BACKWARD, _of_largest(updated, parts), at_once)
    at_once = np.minimum(at_once, engine.step_parameters)
    held = engine.step_bytes * at_once
    if problem.workload.optimizer.kind is OptimizerKind.MUON:
        held = held + orthogonal_bytes(problem, plans, pairs)
    offloaded = plans.offload_optimizer[take] != Offload.NONE
    return np.where(offloaded, 0.0, held)


def init_copy_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards) -> F64:
    """Flat copies of all parameters while an engine starts: engine bytes * parameters, below ZeRO-3.

    Source: engine record; reported for ZeRO-2, whose start is its peak when states are spread thin.
    """
    whole = parts.trained_dense + parts.trained_expert
    flattened = (plans.zero[pairs.row] >= 1) & (plans.zero[pairs.row] < 3)
    return np.where(flattened, problem.engine.memory.init_bytes * whole, 0.0)
