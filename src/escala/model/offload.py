"""Seconds that states in host memory or on disks cost: the way over the host link, the update on the host.

Devices of a node move and update at the same time, so each has its part of the host's memory and disks.
"""

import numpy as np

from escala.model.activations import kept
from escala.model.cluster import Host
from escala.model.columns import F64, I64, Bool, soft_maximum
from escala.model.host import PLACES, moves
from escala.model.plan import Offload, OptimizerStep, Plans, Recompute
from escala.model.problem import Problem
from escala.model.replicas import gathers_per_step
from escala.model.shards import sharing
from escala.model.slowest import Rank
from escala.model.stages import kinds
from escala.model.states import weight_bytes


def wants(plans: Plans) -> dict[str, Bool]:
    """Plans that need each ability which few engines have, by its name in the engine record.

    "offload-apart" is weights or optimizer states alone: FSDP moves both or neither.
    """
    params, optimizer, kept_too = (getattr(plans, name) != Offload.NONE for name in PLACES)
    on_disk = [getattr(plans, name) == Offload.NVME for name in PLACES]
    return {
        "offload-optimizer": optimizer,
        "offload-params": params,
        "offload-apart": params != optimizer,
        "offload-activations": kept_too & (plans.recompute == Recompute.NONE),
        "offload-checkpoints": kept_too & (plans.recompute != Recompute.NONE),
        "offload-disk": on_disk[0] | on_disk[1] | on_disk[2],
        "tiled-step": plans.optimizer_step == OptimizerStep.TILED,
        "step-in-backward": plans.optimizer_step == OptimizerStep.IN_BACKWARD,
    }


def is_unknown(problem: Problem, plans: Plans) -> Bool:
    """Plans that offload to what nobody knows the speed of: the bus to the host, or its disks."""
    host, needed = problem.cluster.host, wants(plans)
    moves = needed["offload-optimizer"] | needed["offload-params"]
    moves = moves | needed["offload-activations"] | needed["offload-checkpoints"]
    no_disk = host.nvme_read_bytes_per_s is None or host.nvme_write_bytes_per_s is None
    return np.asarray((moves & (host.pcie_bytes_per_s is None)) | (needed["offload-disk"] & no_disk))


def link_bytes_per_s(problem: Problem) -> float:
    """What one device moves to or from host memory, all devices of its node at once.

    The lesser of bus * achieved share / devices on it and host memory * achieved share / devices.
    Source: assumptions; nodes of the catalog.
    """
    host, known = problem.cluster.host, problem.assumptions
    assert host.pcie_bytes_per_s is not None  # rejected where it is not known
    achieved = 1.0 if host.is_pcie_measured else known.host_link_efficiency
    shared = min(host.uplink_devices, problem.cluster.devices_per_node)
    return min(host.pcie_bytes_per_s * achieved / shared, host_memory_bytes_per_s(problem))


def host_memory_bytes_per_s(problem: Problem) -> float:
    """The part of one device in what its node's memory achieves: nominal * achieved share / devices."""
    known, nominal = problem.assumptions, problem.cluster.host.memory_bytes_per_s
    rate = (nominal or known.host_memory_bytes_per_s) * known.host_memory_efficiency
    return rate / problem.cluster.devices_per_node


def _speeds(problem: Problem, codes: I64) -> tuple[F64, F64]:
    """Bytes per second up to the device and down from it, for each place."""
    host, devices = problem.cluster.host, problem.cluster.devices_per_node
    link = link_bytes_per_s(problem)
    read, write = (_disk(rate, devices, link) for rate in _disk_rates(host))
    is_disk = codes == Offload.NVME
    return np.where(is_disk, read, link), np.where(is_disk, write, link)


def _disk_rates(host: Host) -> tuple[float | None, float | None]:
    return host.nvme_read_bytes_per_s, host.nvme_write_bytes_per_s


def _disk(rate: float | None, devices: int, link: float) -> float:
    return link if rate is None else min(rate / devices, link)


def offload_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Exposed way to and from the host: soft maximum of compute and transfers - compute, each way of a step.

    Weights come up as often as they are gathered; activations go down in forward and come up in backward,
    when gradients go down. Up and down run at the same time. A step without prefetch shows all of it.
    Source: Rajbhandari 2021 (ZeRO-Infinity), section 4: efficiency = ait * bw / (ait * bw + peak).
    """
    if not moves(plans) or problem.cluster.host.pcie_bytes_per_s is None:
        return np.zeros(len(plans))
    forward, again, scatters = gathers_per_step(problem, plans)
    weights, gradients, activations = _payloads(problem, plans, rank)
    (weights_up, _), (_, states_down), (kept_up, kept_down) = (
        _speeds(problem, getattr(plans, name)) for name in PLACES
    )
    gathers, runs = np.maximum(again, 0.0), plans.micro_batches.astype(np.float64)
    ahead_s = np.maximum(weights / weights_up * forward, activations / kept_down * runs)
    behind_up_s = weights / weights_up * gathers + activations / kept_up * runs
    behind_s = np.maximum(behind_up_s, gradients / states_down * scatters)
    hides = problem.messages.prefetches
    exposed = [
        soft_maximum(busy * runs, moved, problem.assumptions.overlap_norm) - busy * runs if hides else moved
        for busy, moved in ((rank.forward_s, ahead_s), (rank.backward_s, behind_s))
    ]
    return np.asarray(exposed[0] + exposed[1], np.float64)


def _payloads(problem: Problem, plans: Plans, rank: Rank) -> tuple[F64, F64, F64]:
    """Bytes of a rank's weights, its gradients, and what one micro-batch keeps; 0 where they stay."""
    over_dense, over_expert = sharing(plans, np.arange(len(plans)))
    parts, (inner, outer) = rank.parts, weight_bytes(problem)
    weights = (inner * parts.dense + outer * parts.ends) / over_dense + inner * parts.expert / over_expert
    stored = problem.workload.adapter_bytes or problem.engine.memory.gradient_bytes
    gradients = stored * (parts.trained_dense / over_dense + parts.trained_expert / over_expert)
    stays = [getattr(plans, name) == Offload.NONE for name in PLACES]
    activations = np.zeros(len(plans)) if stays[2].all() else _kept_bytes(problem, plans, rank)
    sizes = (weights, gradients, activations)
    here = [np.where(stay, 0.0, size) for stay, size in zip(stays, sizes, strict=True)]
    return here[0], here[1], here[2]


def _kept_bytes(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """What the layers of a rank keep of one micro-batch: checkpoints where they are recomputed."""
    total = np.zeros(len(plans))
    for kind, (stack, block) in enumerate(kinds(problem.workload.network)):
        own = kept(problem, plans, stack, block)
        modes = [plans.recompute == Recompute.FULL, plans.recompute == Recompute.SELECTIVE]
        each = np.select(modes, [own.checkpoint_bytes, own.selective_bytes], own.whole_bytes)
        total = total + rank.layer_counts[:, kind] * each
    return total


def host_update_s(problem: Problem, plans: Plans, updated: F64) -> F64:
    """Update on the host: bytes per parameter / its memory's speed, never less than what moves meanwhile.

    Weights go up tile by tile behind it; states on disks are read and written once. The bytes are those of
    AdamW in fp32 with a 16-bit copy: read 16, write 14, less what smaller states save.
    Source: Ren 2021 (ZeRO-Offload), section 4.2: the update of the host is bound by its memory.
    """
    optimizer = problem.workload.optimizer
    state = optimizer.moments * optimizer.state_bytes
    per_parameter = problem.assumptions.host_update_bytes - 16.0 + 2.0 * state
    busy_s = updated * per_parameter / host_memory_bytes_per_s(problem)
    up, down = _speeds(problem, plans.offload_optimizer)
    goes_up = (plans.offload_params == Offload.NONE) * weight_bytes(problem)[0] * updated
    on_disk = updated * (problem.engine.memory.master_bytes + state)
    disk_s = np.where(plans.offload_optimizer == Offload.NVME, on_disk / up + on_disk / down, 0.0)
    up_s = goes_up / link_bytes_per_s(problem)
    return np.asarray(np.maximum(np.maximum(busy_s, up_s), disk_s), np.float64)


def paged_s(problem: Problem, updated: F64) -> F64:
    """Paged states come up for the step and go down again: 2 * bytes / host link; 0 where that is unknown.

    Source: Dettmers 2023 (QLoRA), section 3; pages move when the device runs short, taken as always.
    """
    if problem.cluster.host.pcie_bytes_per_s is None:
        return np.zeros(len(updated))
    optimizer = problem.workload.optimizer
    return 2.0 * optimizer.moments * optimizer.state_bytes * updated / link_bytes_per_s(problem)
