"""Does a plan fit, by phase, on device and host, and how fast is it? Puts the model's parts together.

States that live in host memory leave the device: weights where they are offloaded, and gradients with the
optimizer that consumes them there. What the host then holds is counted here.
"""

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from escala.model.estimate import Estimate, estimate
from escala.model.memory import Phases, Verdict, early_gradients, verdict, with_slack
from escala.model.parameters import network_parameters
from escala.model.plan import Offload, Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Method

HOST_GRADIENT_BYTES: Final = 4.0
"""Gradients of an optimizer that runs on the host are fp32 there. Source: DeepSpeed 0.19.8,
runtime/zero/stage_1_and_2.py, single_partition_of_fp32_groups."""
HOST_SPREAD: Final = 1.5
"""What pinned and transient buffers add to offloaded states at most. Source: DeepSpeed 0.19.8,
runtime/zero/stage3.py, additional_buffer_factor of its own estimate."""
LOADED_BYTES: Final = 2.0
"""Bytes of a weight in most checkpoints (16 bit)."""
COPY_BYTES: Final = 2.0
"""Bytes of a weight in the second copy of hpZ. Source: DeepSpeed 0.19.8, ZeRO++ (secondary partition)."""
UNPHASED: Final = ("load_bytes", "eval_bytes", "save_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Memory of one node: processes and offloaded states, with buffers at most, and at the start.

    `load_bytes` is what ranks need that each read the whole checkpoint, None where training begins without
    one. `capacity_bytes` None is unknown.
    """

    running_bytes: float
    most_bytes: float
    load_bytes: float | None
    capacity_bytes: float | None

    @property
    def verdict(self) -> Verdict | None:
        """Fits, risky with buffers or whole checkpoints, does not fit; None where nobody knows the memory."""
        if self.capacity_bytes is None:
            return None
        if self.running_bytes > self.capacity_bytes:
            return Verdict.DOES_NOT_FIT
        return Verdict.RISKY if self.most_bytes > self.capacity_bytes else Verdict.FITS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """One plan with its prediction; `phase_bytes` and `needed_bytes` are of the device, after offload.

    `second_copy` are the ranks over which whole weights are sharded once more (hpZ), 0 without.
    """

    problem: Problem
    plan: Plan
    estimate: Estimate
    needed_bytes: float
    phase_bytes: dict[str, float]
    device_verdict: Verdict
    host: HostMemory
    second_copy: int = 0

    @property
    def verdict(self) -> Verdict:
        """The worse of device and host."""
        return max(self.device_verdict, self.host.verdict or Verdict.FITS)

    @property
    def kind_bytes(self) -> dict[str, float]:
        """Bytes on the device by kind, without those that are in host memory."""
        kinds = self.estimate.memory.kinds
        found = {
            name.removesuffix("_bytes"): float(getattr(kinds, name)[0]) for name in type(kinds).__slots__
        }
        moved = ["weights"] if self.plan.offload_params is not Offload.NONE else []
        moved += ["gradients"] if self.plan.offload_optimizer is not Offload.NONE else []
        found |= dict.fromkeys(moved, 0.0)
        return found | {"weights": found["weights"] + copy_bytes(self.problem, self.plan, self.second_copy)}

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return float(self.estimate.step_s[0])

    @property
    def device_tokens_per_s(self) -> float:
        """Tokens (or images) that one device trains on in a second."""
        work = self.problem.workload
        samples = work.global_batch * (1 if work.network.is_image else work.sequence_tokens)
        return samples / self.step_s / self.plan.devices


def copy_bytes(problem: Problem, plan: Plan, ranks: int) -> float:
    """The second copy of the weights on a device: 2 bytes * parameters / (ranks * TP), with ZeRO-3 alone."""
    if ranks < 1 or plan.zero != 3:
        return 0.0
    return COPY_BYTES * network_parameters(problem.workload.network).total / (ranks * plan.tp)


def judged(problem: Problem, plan: Plan, second_copy: int = 0) -> Judged:
    """The prediction of one plan, with what offload moves from device to host, and with hpZ's second copy."""
    result = estimate(problem, Plans.of(plan))
    weights, gradients = _moved_bytes(plan, result)
    copy = copy_bytes(problem, plan, second_copy)
    holds = _with_gradients(problem, plan)
    phases = {}
    for name in (each.name for each in fields(Phases)):
        left = float(getattr(result.memory.phases, name)[0]) - weights - (gradients if name in holds else 0.0)
        phases[name.removesuffix("_bytes")] = max(0.0, left) + (0.0 if name == "load_bytes" else copy)
    moved = weights + gradients - copy
    needed = float(result.memory.needed_bytes[0]) if moved == 0 else _needed(problem, result, phases, moved)
    return Judged(
        problem=problem,
        plan=plan,
        estimate=result,
        needed_bytes=needed,
        phase_bytes=phases,
        device_verdict=Verdict(int(verdict(problem, np.array([needed]))[0])),
        host=_host(problem, plan, result),
        second_copy=second_copy,
    )


def _moved_bytes(plan: Plan, result: Estimate) -> tuple[float, float]:
    """Weights and gradients that leave the device; optimizer state the model moves itself."""
    kinds = result.memory.kinds
    weights = float(kinds.weights_bytes[0]) if plan.offload_params is not Offload.NONE else 0.0
    gradients = float(kinds.gradients_bytes[0]) if plan.offload_optimizer is not Offload.NONE else 0.0
    return weights, gradients


def _with_gradients(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Phases in which the model counts gradients."""
    is_early = bool(early_gradients(problem, Plans.of(plan))[0])
    return ("backward_bytes", "step_bytes", "save_bytes", *(("loss_bytes",) if is_early else ()))


def _needed(problem: Problem, result: Estimate, phases: dict[str, float], moved: float) -> float:
    """The largest phase that is left, with slack on what is static in it and on the rest."""
    kinds = result.memory.kinds
    peak = max(size for name, size in phases.items() if f"{name}_bytes" not in UNPHASED)
    states = kinds.weights_bytes[0] + kinds.optimizer_bytes[0] + kinds.gradients_bytes[0]
    static = min(max(0.0, float(states) - moved), peak)
    return float(with_slack(problem, np.array([static]), np.array([peak - static]))[0])


def _host(problem: Problem, plan: Plan, result: Estimate) -> HostMemory:
    """Processes of a node, and what all its ranks have moved there."""
    per_node = problem.cluster.devices_per_node
    base = float(result.memory.host_bytes[0])
    moved = _offloaded_bytes(problem, plan, result) * per_node
    parameters = network_parameters(problem.workload.network).total
    is_new = problem.workload.method is Method.PRETRAIN
    return HostMemory(
        running_bytes=base + moved,
        most_bytes=base + HOST_SPREAD * moved,
        load_bytes=None if is_new else base + LOADED_BYTES * parameters * per_node,
        capacity_bytes=problem.cluster.host.memory_bytes,
    )


def _offloaded_bytes(problem: Problem, plan: Plan, result: Estimate) -> float:
    """Bytes that one rank keeps in host memory: weights, and optimizer state with fp32 gradients."""
    kinds, total = result.memory.kinds, 0.0
    if plan.offload_params is Offload.CPU:
        total += float(kinds.weights_bytes[0])
    if plan.offload_optimizer is Offload.CPU:
        held = estimate(problem, Plans.of(_without_offload(plan))).memory.kinds
        stored = problem.engine.memory.gradient_bytes
        wider = max(1.0, HOST_GRADIENT_BYTES / stored) if stored else 1.0
        total += float(held.optimizer_bytes[0]) + wider * float(held.gradients_bytes[0])
    if plan.offload_activations is Offload.CPU:
        kept = estimate(problem, Plans.of(_without_offload(plan))).memory.kinds.activations_bytes[0]
        total += max(0.0, float(kept) - float(kinds.activations_bytes[0]))
    return total


def _without_offload(plan: Plan) -> Plan:
    none = Offload.NONE
    return replace(plan, offload_optimizer=none, offload_params=none, offload_activations=none)
