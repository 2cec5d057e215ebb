"""A job of four ranks whose replicas train alone and agree; writes what the test asks for as JSON."""

import json
import sys
from dataclasses import replace
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
from escala.training.checkpoint import Checkpoints, TrainState, latest, load
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


def resumed(plan: Plan, folder: Path) -> dict[str, Any]:
    """Replicas that were saved and resumed in the middle, beside those of a run straight through."""
    straight, cut, again = (Replicas(plan) for _ in range(3))
    straight.train(2 * STEPS)
    cut.train(STEPS)
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(cut.state)
    notes = again.resume(folder)
    own, other = (each.moment() for each in (cut, again))
    again.train(2 * STEPS)
    apart = [
        (whole(one) - whole(two)).abs().max().item()
        for one, two in zip(straight.parallel.parameters(), again.parallel.parameters(), strict=True)
    ]
    every: list[Any] = [None] * RANKS
    dist.all_gather_object(every, own.double().sum().item())
    return {"apart": max(apart), "notes": notes, "moments": every, "is_own": torch.equal(own, other)}


class Replicas:
    """Replicas under AdamW, which train alone and agree; on how far they are."""

    def __init__(self, plan: Plan) -> None:
        self.mesh = mesh_of(plan, torch.device("cpu"))
        self.parallel = parallelize(model("llama"), plan, self.mesh)
        self.optimizer = optimizer_of(self.parallel, rate=RATE / 10)
        self.step = Step(self.parallel, self.optimizer)
        self.agree = LocalSteps(self.parallel.chunks, self.mesh, PLAIN)
        keys = {name: getattr(plan, name) for name in ("dp", "zero", "shard", "local_steps")}
        self.state = TrainState(
            chunks=(*self.parallel.chunks, self.agree.kept),
            optimizer=self.optimizer,
            plan={"plan": keys},
            replica=self.mesh.place(REPLICATE),
        )

    def train(self, last: int) -> None:
        place = self.mesh.place(*DATA)
        for number in range(self.state.step, last):
            self.step(batch("llama", ROWS * RANKS, number, False).rows(ROWS * place, ROWS))
            self.agree(number + 1)
        self.state = replace(self.state, step=last)

    def moment(self) -> torch.Tensor:
        """A copy of what this rank's optimizer keeps for its first parameter."""
        kept = self.optimizer.state_dict()["state"][0]["exp_avg"]
        return (kept.to_local() if hasattr(kept, "to_local") else kept).clone()

    def resume(self, folder: Path) -> tuple[str, ...]:
        found = load(latest(folder), self.state)
        self.state = found.state
        self.agree.resume()
        return found.notes


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()


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
    ddp, hsdp = Plan(dp=4, **shared), Plan(dp=4, zero=3, shard=2, reshard=True, **shared)
    found = {
        "ddp": trained(ddp),
        "hsdp": trained(hsdp),
        **{wire.name: mean(wire) for wire in LocalWire},
        "ddp resumed": resumed(ddp, folder / "ddp"),
        "hsdp resumed": resumed(hsdp, folder / "hsdp"),
        "on another layout": Replicas(hsdp).resume(folder / "ddp"),
    }
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
