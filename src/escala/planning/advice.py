"""When nothing fits: the smallest changes that would make some plan fit, the gentlest first."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Lora, Method
from escala.planning.scaling import on
from escala.planning.search import search
from escala.planning.space import SpaceLimits

MOST_DEVICES: Final = 1 << 16
"""Devices up to which more of them are proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that makes the workload fit, and the plan that then runs."""

    title: str
    plan: Plan
    step_s: float


def remedies(problem: Problem, limits: SpaceLimits | None = None, *, most: int = 3) -> list[Remedy]:
    """Changes after which some plan fits without offload, at most `most`: states, tokens, method, devices."""
    found: list[Remedy] = []
    for title, other in _changes(problem):
        result = search(other, limits, top=1, may_offload=False)
        if result.ranking is not None:
            plan = result.ranking.plans[0]
            found.append(Remedy(title=title, plan=plan, step_s=float(result.ranking.step_s[0])))
        if len(found) == most:
            break
    return found


def _changes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    workload = problem.workload
    optimizer = workload.optimizer
    for name, width in (("bf16", 2.0), ("8-bit", 1.0)):
        if optimizer.state_bytes > width and not workload.is_frozen:
            smaller = replace(optimizer, state_bytes=width)
            yield (
                f"keep optimizer states in {name}",
                replace(problem, workload=replace(workload, optimizer=smaller)),
            )
    tokens = workload.sequence_tokens
    while tokens > 512 and not workload.network.is_image and not workload.network.is_traced:
        tokens //= 2
        yield (
            f"sequence of {tokens:,} tokens",
            replace(problem, workload=replace(workload, sequence_tokens=tokens)),
        )
    if not workload.is_frozen and not workload.network.is_traced:
        adapted = replace(workload, method=Method.LORA, lora=Lora())
        yield "train LoRA adapters instead of all weights", replace(problem, workload=adapted)
    devices, reach = problem.cluster.devices, problem.cluster.links[-1].domain_devices
    while devices * 2 <= min(workload.global_batch, reach, MOST_DEVICES):
        devices *= 2
        yield f"{devices:,} devices", on(problem, devices)
