"""Does a plan fit, by phase, on device and host, and how fast is it? Puts the model's parts together."""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from escala.model.estimate import Estimate, estimate
from escala.model.memory import Phases, Verdict, verdict
from escala.model.parameters import network_parameters
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Method

LOADED_BYTES: Final = 2.0
"""Bytes of a weight in most checkpoints (16 bit)."""
COPY_BYTES: Final = 2.0
"""Bytes of a weight in the second copy of hpZ. Source: DeepSpeed 0.19.8, ZeRO++ (secondary partition)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Memory of one node: offloaded states, processes beside, with buffers at most, and at the start.

    `load_bytes` is what ranks need that each read the whole checkpoint, None where training begins without
    one. `capacity_bytes` None is unknown.
    """

    moved_bytes: float
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
    """One plan with its prediction.

    `second_copy` are the ranks over which whole weights are sharded once more (hpZ), 0 without.
    """

    problem: Problem
    plan: Plan
    estimate: Estimate
    host: HostMemory
    second_copy: int = 0

    @property
    def needed_bytes(self) -> float:
        """What must be free on the device."""
        slack = 1.0 + self.problem.engine.memory.static_slack
        return float(self.estimate.memory.needed_bytes[0]) + self._copy_bytes * slack

    @property
    def device_verdict(self) -> Verdict:
        """Whether it fits on the device."""
        return Verdict(int(verdict(self.problem, np.array([self.needed_bytes]))[0]))

    @property
    def phase_bytes(self) -> dict[str, float]:
        """Bytes on the device by phase."""
        phases, copy = self.estimate.memory.phases, self._copy_bytes
        held = {each.name: float(getattr(phases, each.name)[0]) for each in fields(Phases)}
        return {
            name.removesuffix("_bytes"): size + (0.0 if name == "load_bytes" else copy)
            for name, size in held.items()
        }

    @property
    def _copy_bytes(self) -> float:
        return copy_bytes(self.problem, self.plan, self.second_copy)

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
        return found | {"weights": found["weights"] + self._copy_bytes}

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
    """The prediction of one plan, with hpZ's second copy."""
    result = estimate(problem, Plans.of(plan))
    host = _host(problem, result)
    return Judged(problem=problem, plan=plan, estimate=result, host=host, second_copy=second_copy)


def _host(problem: Problem, result: Estimate) -> HostMemory:
    """Processes of a node, and what all its ranks have moved there."""
    base = problem.assumptions.process_bytes * problem.cluster.devices_per_node
    parameters = network_parameters(problem.workload.network).total
    is_new = problem.workload.method is Method.PRETRAIN
    loaded = base + LOADED_BYTES * parameters * problem.cluster.devices_per_node
    return HostMemory(
        moved_bytes=float(result.memory.host_bytes[0]) - base,
        running_bytes=float(result.memory.host_bytes[0]),
        most_bytes=float(result.memory.host_most_bytes[0]),
        load_bytes=None if is_new else loaded,
        capacity_bytes=problem.cluster.host.memory_bytes,
    )
