"""Evaluations between steps: afterwards every rank holds its shards again, as optimizers do. And gathers."""

import json
from dataclasses import replace
from typing import Any

import torch
from forked import on_ranks
from torch.utils._python_dispatch import TorchDispatchMode

from escala.model.plan import Plan, Precision, Schedule
from escala.parallel.mesh import DATA, mesh_of
from escala.parallel.optimizers import optimizer_of
from escala.parallel.parallelize import parallelize
from escala.parallel.step import Step, evaluate
from parallel.models import model
from parallel.oracle import batch

SHARED = {"precision": Precision.FP32}
PIPED = {"pp": 2, "schedule": Schedule.ONE_F_ONE_B, "micro_batches": 2}
PLANS = {
    "kept": Plan(dp=2, zero=3, shard=2, **SHARED),
    "resharded": Plan(dp=2, zero=3, shard=2, reshard=True, **SHARED),
    "tensors": Plan(tp=2, sp=True, **SHARED),
    "stages": Plan(zero=3, shard=1, **PIPED, **SHARED),
}


def held(rank: int) -> dict[str, Any]:
    """Of each plan: the parameters of the optimizer that the module no longer has after an evaluation."""
    found = {}
    for name, plan in PLANS.items():
        mesh = mesh_of(plan, torch.device("cpu"))
        parallel = parallelize(model("llama"), plan, mesh)
        optimizer = optimizer_of(parallel, rate=1e-3)
        step, rows = Step(parallel, optimizer), 8 // mesh.size(*DATA)
        given = batch("llama", 8, 0, False).rows(rows * mesh.place(*DATA), rows)
        lost = 0
        for _ in range(2):
            step(given)
            evaluate(parallel, given)
            lost += len(set(optimizer.state) - set(parallel.parameters()))
        found[name] = lost
    return found


class Gathers(TorchDispatchMode):
    """Counts gathers of weights."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and do it."""
        self.count += func is torch.ops.c10d._allgather_base_.default
        return func(*args, **(kwargs or {}))


def gathers(rank: int) -> dict[str, int]:
    """How often a step of two micro-batches gathers weights, under the plans of FSDP."""
    found = {}
    for name in ("kept", "resharded"):
        plan = replace(PLANS[name], micro_batches=2)
        parallel = parallelize(model("llama"), plan, mesh_of(plan, torch.device("cpu")))
        step = Step(parallel, optimizer_of(parallel, rate=1e-3), clip_norm=1.0)
        with Gathers() as seen:
            step(batch("llama", 8, 0, False).rows(4 * rank, 4))
        found[name] = seen.count
    return found


def both(rank: int) -> dict[str, Any]:
    """What a rank tells."""
    return {"lost": held(rank), "gathers": gathers(rank)}


if __name__ == "__main__":
    print(json.dumps(on_ranks(2, both)))
