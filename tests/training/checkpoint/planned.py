"""Save under one plan, resume under others, with `parallelize` itself; prints losses as one JSON line."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from forked import on_ranks

from escala.model.plan import Plan, Schedule
from escala.parallel.mesh import DATA, mesh_of
from escala.parallel.optimizers import optimizer_of
from escala.parallel.parallelize import parallelize
from escala.parallel.step import Step
from escala.training.checkpoint import Checkpoints, TrainState, latest, load
from parallel.models import model
from parallel.oracle import EPSILON, batch, plan

ROWS, LAST, SAVED = 8, 6, 3
SAVING = plan(dp=4, zero=3, reshard=True, shard=4)
FOUR = {
    "replicated": plan(dp=4),
    "ZeRO-1": plan(dp=4, zero=1, shard=4),
    "ZeRO-2": plan(dp=4, zero=3, shard=4),
    "HSDP": plan(dp=4, zero=3, reshard=True, shard=2),
    "stages x sharded": plan(dp=2, zero=3, shard=2, pp=2, schedule=Schedule.ONE_F_ONE_B, micro_batches=2),
    "two stages a rank": plan(dp=2, pp=2, schedule=Schedule.INTERLEAVED, virtual_stages=2, micro_batches=2),
    "tensor x sharded": plan(dp=2, zero=3, reshard=True, shard=2, tp=2, sp=True),
}
TWO = {"replicated": plan(dp=2), "sharded": plan(dp=2, zero=3, shard=2)}
OTHERS = {
    "tensor": ("llama", plan(tp=2, sp=True)),
    "tied": ("hf-gpt2", TWO["sharded"]),
    "tied over stages": ("hf-gpt2", plan(pp=2, schedule=Schedule.GPIPE, micro_batches=2)),
    "fused": ("hf-gpt2", plan(tp=2)),
    "experts": ("moe", plan(dp=2, zero=3, shard=2, ep=2)),
    "width of experts": ("moe", plan(tp=2, etp=2)),
}
KINDS = ("llama", "hf-gpt2", "moe")


class Run:
    """A module under a plan, from its seed; `train` goes on to a step and saves on the way where asked."""

    def __init__(self, plan: Plan, kind: str = "llama") -> None:
        self.mesh, self.kind = mesh_of(plan, torch.device("cpu")), kind
        self.parallel = parallelize(model(kind), plan, self.mesh)
        self.optimizer = optimizer_of(self.parallel, rate=1e-3, eps=EPSILON)
        self.step = Step(self.parallel, self.optimizer, clip_norm=1.0)
        keys = {name: getattr(plan, name) for name in ("dp", "zero", "shard", "tp", "pp")}
        self.state = TrainState(
            chunks=self.parallel.chunks,
            optimizer=self.optimizer,
            plan={"plan": keys},
        )

    def train(self, last: int, folder: Path | None = None, at: int = SAVED) -> list[float]:
        losses = []
        rows = ROWS // self.mesh.size(*DATA)
        for step in range(self.state.step, last):
            whole = batch(self.kind, ROWS, step, has_documents=False)
            losses.append(self.step(whole.rows(self.mesh.place(*DATA) * rows, rows)).loss)
            self.state = replace(self.state, step=step + 1)
            if folder is not None and step + 1 == at:
                with Checkpoints(folder) as checkpoints:
                    checkpoints.save(self.state)
        return losses

    def resumed(self, folder: Path) -> list[float]:
        self.state = load(latest(folder), self.state).state
        return self.train(LAST)


def four(folder: Path) -> list[Any]:
    def work(rank: int) -> Any:
        seen = {"whole": Run(SAVING).train(LAST, folder / "sharded")}
        for name, other in FOUR.items():
            seen[name] = Run(other).resumed(folder / "sharded")
        for name in ("replicated", "ZeRO-1", "tensor x sharded", "stages x sharded", "two stages a rank"):
            Run(FOUR[name]).train(SAVED, folder / name)
            seen[f"sharded after {name}"] = Run(SAVING).resumed(folder / name)
        for kind in KINDS:
            seen[kind] = Run(SAVING, kind).train(LAST, folder / kind)
        return seen

    return on_ranks(4, work)


def two(folder: Path) -> list[Any]:
    def work(rank: int) -> Any:
        seen: dict[str, Any] = {name: Run(other).resumed(folder / "sharded") for name, other in TWO.items()}
        for name, (kind, other) in OTHERS.items():
            seen[name] = Run(other, kind).resumed(folder / kind)
            Run(other, kind).train(SAVED, folder / name)
            seen[f"sharded after {name}"] = Run(TWO["sharded"], kind).resumed(folder / name)
        return seen

    return on_ranks(2, work)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(json.dumps({"four": four(place), "two": two(place)}))
