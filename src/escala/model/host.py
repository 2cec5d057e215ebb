"""What devices keep in the memory of their host, and its buffers. Bytes; `memory` has the verdict."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import F64
from escala.model.plan import Offload, Plans
from escala.model.problem import Problem
from escala.model.shards import Shards
from escala.model.stages import Slots
from escala.model.states import whole_states

PLACES: Final = ("offload_params", "offload_optimizer", "offload_activations")
DISK_BUFFERS_BYTES: Final = (5 * 1e8 * 2.0, 4 * 1e9 * 4.0, 5 * 1e8 * 2.0)
"""Pinned buffers of a rank for weights, optimizer states and activations on disks, at most.

5 of 1e8 weights, 4 of a sub-group of 1e9 fp32 numbers. Source: DeepSpeed, config-json."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostBytes:
    """Memory of one node: what its processes hold, and the most with pinned buffers. Shapes: (n,)."""

    running_bytes: F64
    most_bytes: F64


def host_bytes(problem: Problem, plans: Plans, moved_bytes: F64) -> HostBytes:
    """Host memory of one node: (process + what its device offloads) * devices; pinned buffers add a share.

    Source: process base measured with weights loaded shard by shard; pinned allocators round up to a power of
    two, see assumptions.
    """
    known, devices = problem.assumptions, problem.cluster.devices_per_node
    base = np.full(len(plans), known.process_bytes * devices)
    return HostBytes(
        running_bytes=base + moved_bytes * devices,
        most_bytes=base + known.host_pinned_ratio * moved_bytes * devices,
    )


def moves(plans: Plans) -> bool:
    """Whether any of the plans offloads anything."""
    return any(bool(getattr(plans, name).any()) for name in PLACES)


def node_moved_bytes(problem: Problem, plans: Plans, pairs: Slots, moved_bytes: F64) -> F64:
    """Offloaded by the mean device of the node that offloads most: it has the stages that move most.

    A node has as many pipeline stages as its devices hold, one at least. Shape (n,).
    """
    if not moved_bytes.any():
        return np.zeros(len(plans))
    order = np.lexsort((-moved_bytes, pairs.row))
    moved, alike, row = moved_bytes[order], pairs.alike[order], pairs.row[order]
    stages = np.clip(problem.cluster.devices_per_node * plans.pp / plans.devices, 1.0, plans.pp)
    total = np.cumsum(alike)
    before = total - alike
    taken = np.clip(stages[row] - (before - before[pairs.first][row]), 0.0, alike)
    return np.asarray(np.add.reduceat(taken / stages[row] * moved, pairs.first), np.float64)


def offloaded_bytes(problem: Problem, plans: Plans, pairs: Slots, parts: Shards, kept: F64) -> F64:
    """What one device keeps in host memory: weights, optimizer states with gradients, kept activations.

    Gradients of an optimizer on the host are fp32 there. Of what lies on disks the host has buffers.
    Source: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py (single_partition_of_fp32_groups).
    """
    take, gradient_bytes = pairs.row, problem.engine.memory.gradient_bytes
    held = whole_states(problem, plans, pairs, parts)
    wider = max(1.0, 4.0 / gradient_bytes) if gradient_bytes else 1.0
    updated = held["optimizer_bytes"] + wider * held["gradients_bytes"]
    total = np.zeros(len(take))
    for name, size, most in zip(
        PLACES, (held["weights_bytes"], updated, kept), DISK_BUFFERS_BYTES, strict=True
    ):
        place = getattr(plans, name)[take]
        where = [place == Offload.CPU, place == Offload.NVME]
        total = total + np.select(where, [size, np.minimum(size, most)], 0.0)
    return total
