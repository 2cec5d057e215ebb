"""How fast the loop of `escala train` is beside a bare loop of PyTorch, and beside Accelerate's.

    torchrun --standalone --nproc-per-node 2 benchmarks/throughput.py --mode ddp
    torchrun --standalone --nproc-per-node 2 benchmarks/throughput.py --mode fsdp

All loops train the same decoder from the same seed on the same samples in the same mode, in one process
group, in turns: a block of steps of each, then of each in the opposite order, so that what else the machine
does meets all, and each follows itself as often as another. All clip to the same norm and update by the same
kernel of AdamW; FSDP wraps blocks, which reshard after forward, and the rest, which does not: its defaults.
Seconds of a block hold all that goes on in it: reading samples, sinks, watchdog, agreeing to go on. The loop
of escala is the session of `escala train` without evaluation, profiler and checkpoint. Accelerate takes part
under DDP where it is installed. Rank 0 prints the rate of each loop in terms of the bare one beside it, the
median over blocks with quartiles. Losses of ranks are averaged, and have to be the same in all loops.
"""

import argparse
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from escala.catalog import engine
from escala.catalog.clusters import cluster
from escala.catalog.engines import assumptions
from escala.catalog.networks import network
from escala.model.plan import Plan, Precision
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.why import resized
from escala.training.data.synthetic import SyntheticTokens
from escala.training.job import Choices, Decay, Job, Rate, Saving, Update
from escala.training.launch.place import place_of
from escala.training.modules import built
from escala.training.session import Setting, train
from escala.training.steprecord import StepRecord

SEED, RATE, WEIGHT_DECAY, BETAS, CLIP = 1, 1e-3, 0.1, (0.9, 0.95), 1.0
WARM_BLOCKS = 2
"""Blocks of each loop that are not counted: the first turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every loop trains: a network, samples, and how a step is divided."""

    problem: Problem
    plan: Plan
    device: torch.device

    @property
    def rows(self) -> int:
        """Samples of a rank in a step."""
        return self.plan.micro_batch * self.plan.micro_batches

    def module(self) -> nn.Module:
        """The same weights in every loop."""
        return built(None, self.problem.workload.network, SEED)[0].to(self.device)

    def adamw(self, module: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of loops by hand: the kernel that escala takes."""
        kernel = "fused" if self.device.type == "cuda" else "foreach"
        given = {"lr": RATE, "betas": BETAS, "weight_decay": WEIGHT_DECAY, kernel: True}
        return torch.optim.AdamW(module.parameters(), **given)

    def samples(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The samples of this rank: those that the session reads for the same step."""
        work = self.problem.workload
        table = work.network.main.embedding
        assert table is not None
        source = SyntheticTokens(sequence_tokens=work.sequence_tokens, vocabulary=table.vocab, seed=SEED)
        found = source.batch(step * work.global_batch + dist.get_rank() * self.rows, self.rows)
        inputs, targets = torch.from_numpy(found.inputs), torch.from_numpy(found.targets)
        return inputs.to(self.device), targets.to(self.device)


def loss_of(model: Callable[..., Any], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy."""
    answer = model(inputs)
    return cross_entropy(getattr(answer, "logits", answer).flatten(0, -2).float(), targets.flatten())


class Bare:
    """What a person writes by hand: DDP or FSDP2, accumulation, clipping, AdamW; reads the loss each step."""

    def __init__(self, work: Work, mode: str) -> None:
        self.work, self.done = work, 0
        self.losses: list[float] = []
        self.is_ddp = mode == "ddp"
        module = work.module()
        self.model = DistributedDataParallel(module) if self.is_ddp else _sharded(module)
        self.update = work.adamw(self.model)

    def step(self) -> None:
        """One step of all ranks."""
        inputs, targets = self.work.samples(self.done)
        size, count, total = self.work.plan.micro_batch, self.work.plan.micro_batches, 0.0
        for place, first in enumerate(range(0, len(inputs), size)):
            with self._apart(is_last=place == count - 1):
                rows = slice(first, first + size)
                loss = loss_of(self.model, inputs[rows], targets[rows]) / count
                loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.update.step()
        self.update.zero_grad()
        self.losses.append(float(total))
        self.done += 1

    def _apart(self, *, is_last: bool) -> Any:
        return self.model.no_sync() if self.is_ddp and not is_last else nullcontext()


def _sharded(module: nn.Module) -> nn.Module:
    for block in module.get_submodule("model.layers").children():
        fully_shard(block)
    return fully_shard(module)


class Accelerated:
    """The loop of Accelerate's documentation, under DDP."""

    def __init__(self, work: Work) -> None:
        from accelerate import Accelerator

        self.work, self.done = work, 0
        self.losses: list[float] = []
        self.accelerator = Accelerator(
            gradient_accumulation_steps=work.plan.micro_batches, cpu=work.device.type == "cpu"
        )
        module = work.module()
        self.model, self.update = self.accelerator.prepare(module, work.adamw(module))

    def step(self) -> None:
        """One step of all ranks."""
        inputs, targets = self.work.samples(self.done)
        size, total = self.work.plan.micro_batch, 0.0
        for first in range(0, len(inputs), size):
            with self.accelerator.accumulate(self.model):
                rows = slice(first, first + size)
                loss = loss_of(self.model, inputs[rows], targets[rows])
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), CLIP)
                self.update.step()
                self.update.zero_grad()
            total += loss.detach() / self.work.plan.micro_batches
        self.losses.append(float(total))
        self.done += 1


@dataclass(slots=True, kw_only=True)
class Turns:
    """Told of each step of the session: in a turn all loops have a block, then one in the opposite order."""

    block: int
    others: dict[str, Any]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    apart: dict[str, float] = field(default_factory=dict)
    began_s: float = float("nan")

    def __call__(self, record: StepRecord) -> None:
        """The end of a step of the session."""
        self.losses.append(record.loss)
        if record.step % self.block:
            return
        self._add("escala", time.perf_counter() - self.began_s)
        if record.step // self.block % 2:
            for name in (*self.others, *reversed(self.others)):
                self._other(name, self.others[name])
        dist.barrier()
        self.began_s = time.perf_counter()

    def _other(self, name: str, loop: Any) -> None:
        dist.barrier()
        began_s = time.perf_counter()
        for _ in range(self.block):
            loop.step()
        self._add(name, time.perf_counter() - began_s)
        losses = torch.tensor(loop.losses[: len(self.losses)])
        dist.all_reduce(losses)
        own = torch.tensor(self.losses[: len(losses)])
        self.apart[name] = float((losses / dist.get_world_size() - own).abs().max())

    def _add(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)


def work_of(given: argparse.Namespace, ranks: int, device: torch.device) -> Work:
    """The question: a network of the catalog on as many devices as there are ranks."""
    is_sharded = given.mode == "fsdp"
    plan = Plan(
        dp=ranks,
        zero=3 if is_sharded else 0,
        shard=ranks if is_sharded else 1,
        reshard=is_sharded,
        precision=Precision.FP32,
        micro_batch=given.micro_batch,
        micro_batches=given.micro_batches,
    )
    work = Workload(
        network=network(given.network),
        sequence_tokens=given.seq,
        global_batch=ranks * given.micro_batch * given.micro_batches,
    )
    problem = Problem(
        workload=work,
        cluster=resized(cluster("dgx-h100-superpod-su", 8), ranks),
        engine=engine("pytorch"),
        assumptions=assumptions(),
    )
    return Work(problem=problem, plan=plan, device=device)


def race(given: argparse.Namespace, device: torch.device, folder: Path) -> Turns:
    """All blocks of all loops; the session joins the ranks, so the others are built when it builds."""
    place = place_of(os.environ)
    work, turns = work_of(given, place.ranks, device), Turns(block=given.block, others={})

    def begun(what: str, left_s: float) -> None:
        if what == "building":
            turns.others["bare"] = Bare(work, given.mode)
            if given.mode == "ddp" and importlib.util.find_spec("accelerate"):
                turns.others["accelerate"] = Accelerated(work)

    choices = Choices(
        steps=given.block * (2 * given.turns + WARM_BLOCKS),
        data="synthetic",
        seed=SEED,
        rate=Rate(highest=RATE, decay=Decay.CONSTANT),
        update=Update(weight_decay=WEIGHT_DECAY, betas=BETAS, clip_norm=CLIP),
        saving=Saving(at_end=False),
        is_observed=False,
    )
    job = Job(problem=work.problem, plan=work.plan, folder=folder, choices=choices)
    train(job, {}, Setting(device=device, place=place, told=turns, progress=begun))
    return turns


def table(turns: Turns, steps: int) -> str:
    """A line a loop: median steps/s, in terms of the bare loop with quartiles, losses beside escala's."""
    seconds = {name: np.array(each[WARM_BLOCKS:]) for name, each in turns.seconds.items()}
    lines = ["| loop | steps/s | rate / bare | quartiles | losses apart |", "|---|---|---|---|---|"]
    for name, each in seconds.items():
        low, median, high = np.percentile(seconds["bare"] / each, (25, 50, 75))
        apart = f"{turns.apart[name]:.1e}" if name in turns.apart else "–"
        rate = float(np.median(steps / each))
        lines.append(f"| {name} | {rate:.2f} | {median:.3f} | {low:.3f} to {high:.3f} | {apart} |")
    return "\n".join(lines)


def main() -> None:
    """Run the race; rank 0 prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--network", default="byte-llama")
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--block", type=int, default=5, help="steps of a block")
    parser.add_argument("--turns", type=int, default=10, help="turns that count: two blocks of each loop")
    given = parser.parse_args()
    is_cuda, rank = torch.cuda.is_available(), int(os.environ.get("RANK", "0"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if is_cuda else torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        turns = race(given, device, Path(folder))
    if rank == 0:
        print(f"{given.mode}, {given.network}, {2 * given.turns} blocks of {given.block} steps\n")
        print(table(turns, given.block))


if __name__ == "__main__":
    main()
