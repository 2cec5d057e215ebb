"""Optimizers over what one rank holds of a module."""

from typing import Any, Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from escala.errors import InvalidInput
from escala.model.workload import OptimizerKind
from escala.parallel.mesh import CONTEXT, SHARD
from escala.parallel.parallelize import Parallel

BUILT: Final = {OptimizerKind.ADAMW: torch.optim.AdamW, OptimizerKind.SGD: torch.optim.SGD}


def optimizer_of(
    parallel: Parallel, kind: OptimizerKind = OptimizerKind.ADAMW, *, rate: float, **choices: Any
) -> torch.optim.Optimizer:
    """AdamW or SGD; under ZeRO-1 each rank updates its share of the parameters and sends them."""
    if kind not in BUILT:
        raise InvalidInput(f"optimizer {kind} is not run yet; choose {' or '.join(BUILT)}")
    parameters = [each for each in parallel.parameters() if each.requires_grad]
    # One kernel for all parameters where there is one, many parameters a call elsewhere.
    kernel = "fused" if parallel.mesh.device.type == "cuda" else "foreach"
    given = {"lr": rate, kernel: True, **choices}
    if parallel.plan.zero == 1 and parallel.mesh.size(SHARD, CONTEXT) > 1:
        # Here, since importing its package warns of what it compiles.
        from torch.distributed.optim import ZeroRedundancyOptimizer

        group = parallel.mesh.group(SHARD, CONTEXT)
        return ZeroRedundancyOptimizer(parameters, BUILT[kind], process_group=group, **given)
    return BUILT[kind](_by_mesh(parameters), **given)


def _by_mesh(parameters: list[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups of parameters that lie on the same ranks: one operation cannot update those of two meshes."""
    groups: dict[object, list[nn.Parameter]] = {}
    for each in parameters:
        groups.setdefault(each.device_mesh if isinstance(each, DTensor) else None, []).append(each)
    return [{"params": group} for group in groups.values()]
