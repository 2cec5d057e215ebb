"""A job of four ranks whose replicas train alone and agree; writes what the test asks for as JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from escala.model.plan import LocalWire, Plan, Precision
from escala.model.workload import OptimizerKind
from escala.parallel.local_steps import LocalSteps, mean_of
from escala.parallel.mesh import DATA, REPLICATE, mesh_of
from escala.parallel.optimizers import optimizer_of
from escala.parallel.outer import Outer
from escala.parallel.parallelize import parallelize
from escala.parallel.step import Step
from parallel.models import model
from parallel.oracle import batch

RANKS, STEPS, ROWS, RATE = 4, 4, 2, 0.1
PLAIN = Outer(learning_rate=1.0, momentum=0.0)


def trained(plan: Plan) -> dict[str, Any]:
    """Replicas after one round of local steps, beside each of them trained in one process and averaged."""
    mesh = mesh_of(plan, torch.device("cpu"))
    parallel = parallelize(model("llama"), plan, mesh)
    step = Step(parallel, optimizer_of(parallel, OptimizerKind.SGD, rate=RATE))
    agree = LocalSteps(parallel.chunks, mesh, PLAIN)
    sent = []
    for number in range(STEPS):
        step(batch("llama", ROWS * RANKS, number, False).rows(ROWS * mesh.place(*DATA), ROWS))
        sent.append(agree(number + 1))
    whole = {
        name: each.full_tensor() if hasattr(each, "full_tensor") else each.detach()
        for name, each in parallel.chunks[0].named_parameters()
    }
    replicas = mesh.size(REPLICATE)
    expected = averaged(replicas)
    return {
        "weights": max((whole[name] - expected[name]).abs().max().item() for name in expected),
        "sent": sent,
        "numbers": sum(each.numel() for each in expected.values()),
    }


def averaged(replicas: int) -> dict[str, torch.Tensor]:
    """Weights of plain loops over the samples of each replica, averaged."""
    total: dict[str, torch.Tensor] = {}
    rows = ROWS * RANKS // replicas
    for replica in range(replicas):
        module = model("llama")
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        for number in range(STEPS):
            own = batch("llama", ROWS * RANKS, number, False).rows(replica * rows, rows)
            logits = module(own.inputs).flatten(0, 1)
            torch.nn.functional.cross_entropy(logits, own.targets.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        for name, each in module.named_parameters():
            total[name] = total.get(name, 0) + each.detach() / replicas
    return total


def mean(wire: LocalWire) -> dict[str, Any]:
    """The mean of 5,000 normal numbers of each rank, sent in a format."""
    torch.manual_seed(dist.get_rank())
    values = torch.randn(5000)
    every = [torch.empty_like(values) for _ in range(RANKS)]
    dist.all_gather(every, values)
    truth = torch.stack(every).mean(0)
    sent = mean_of(values, None, wire)
    most = max(each.abs().max().item() for each in every)
    return {"error": (values - truth).abs().max().item(), "sent": sent, "most": most}


def main(folder: Path) -> None:
    """Run everything; rank 0 writes."""
    dist.init_process_group("gloo")
    shared = {"local_steps": STEPS, "precision": Precision.FP32}
    found = {
        "ddp": trained(Plan(dp=4, **shared)),
        "hsdp": trained(Plan(dp=4, zero=3, shard=2, reshard=True, **shared)),
        **{wire.name: mean(wire) for wire in LocalWire},
    }
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
