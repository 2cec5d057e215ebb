"""Offload that a search may try where nothing fits without, the gentlest first, and what it cannot answer."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.model.offload import is_unknown, wants
from escala.model.plan import Offload, OptimizerStep, Plan, Plans
from escala.model.problem import Problem
from escala.planning.space import SpaceLimits

LADDER: Final = (
    ("offload_optimizer",),
    ("offload_params", "offload_optimizer"),
    ("offload_activations",),
    ("offload_params", "offload_optimizer", "offload_activations"),
)


def with_offload(problem: Problem, limits: SpaceLimits) -> Iterator[SpaceLimits]:
    """The limits with ever more in host memory, as far as the engine can and the host's bus is known."""
    if not limits.is_open or problem.cluster.host.pcie_bytes_per_s is None:
        return
    for names in LADDER:
        moved = dict.fromkeys(names, (int(Offload.CPU),))
        tried = replace(limits, fixed={**limits.fixed, **moved})
        if can_offload(problem, tried.plain) and not is_torn(tried.plain):
            yield tried


def can_offload(problem: Problem, plan: Plan) -> bool:
    """Whether the engine moves what the plan moves, in one of the ways that recompute leaves open."""
    asked = {name for name, wanted in wants(Plans.of(plan)).items() if wanted[0]}
    kept = {"offload-activations", "offload-checkpoints"}
    if asked & kept and kept & set(problem.engine.has):
        asked -= kept
    return asked <= set(problem.engine.has)


def is_torn(plan: Plan) -> bool:
    """Whether weights are updated inside backward on the device and their states are on the host."""
    is_early = plan.optimizer_step is OptimizerStep.IN_BACKWARD
    return is_early and plan.offload_optimizer is not Offload.NONE


def refuse_unknown_offload(problem: Problem, plan: Plan) -> None:
    """Raise for offload, asked for, of which the engine has none or nobody knows the speed."""
    if not can_offload(problem, plan):
        known = ", ".join(problem.engine.has) or "none of these"
        raise InvalidInput(f"the engine {problem.engine.name} cannot offload or update so; it has {known}")
    if is_torn(plan):
        raise InvalidInput("a step inside backward has its states on the device; fix one of both")
    if bool(np.any(is_unknown(problem, Plans.of(plan)))):
        raise InvalidInput(
            f"{problem.cluster.name}: the speed of the host's bus or of its disks is not known; "
            "describe it in a cluster.toml under [host]: pcie, nvme_read, nvme_write"
        )
