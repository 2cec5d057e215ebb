"""Optimizers over what one rank holds of a module."""

from typing import Any

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from escala.errors import InvalidInput
from escala.model.workload import OptimizerKind
from escala.parallel.mesh import CONTEXT, SHARD
from escala.parallel.parallelize import Parallel

BUILT = {OptimizerKind.ADAMW: torch.optim.AdamW, OptimizerKind.SGD: torch.optim.SGD}


def optimizer_of(
    parallel: Parallel, kind: OptimizerKind = OptimizerKind.ADAMW, *, rate: float, **choices: Any
) -> torch.optim.Optimizer:
    """AdamW or SGD; under ZeRO-1 each rank updates its share of the parameters and sends them."""
    if kind not in BUILT:
        raise InvalidInput(f"optimizer {kind} is not run yet; choose {' or '.join(BUILT)}")
    parameters = [each for each in parallel.parameters() if each.requires_grad]
    given = {"lr": rate, "foreach": True, **choices}
    if parallel.plan.zero == 1 and parallel.mesh.size(SHARD, CONTEXT) > 1:
        group = parallel.mesh.group(SHARD, CONTEXT)
        return ZeroRedundancyOptimizer(parameters, BUILT[kind], process_group=group, **given)
    return BUILT[kind](parameters, **given)
