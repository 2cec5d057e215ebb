"""Trains every case of a list for a few steps, as one rank of a launch, and writes the seconds of each step.

`worker.py CASES.json OUT.json`: the first rank writes, for every case, the steps of the rank whose median is
longest (`step_s`), and those of the same work without other ranks (`alone_s`), which is the compute part.
"""

import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from netlab.cases import Shape
from netlab.decoder import Decoder, loss_of

WARM_STEPS: Final = 2
LEAST_STEPS: Final = 3
MOST_STEPS: Final = 8
ENOUGH_S: Final = 3.0
Step = Callable[[], object]


def main(cases: Path, out: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    found = {}
    for case in json.loads(cases.read_text()):
        torch.manual_seed(0)
        found[case["name"]] = measured(case)
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    # all is written; gloo's threads may still be ending, and C++ aborts a process that ends before them
    os._exit(0)


def measured(case: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of the steps of one case on its slowest rank, and of its compute part."""
    make, shape = WAYS[case["way"]], Shape(**case["shape"])
    step = make(case, shape)
    for _ in range(WARM_STEPS - 1):
        step()
    one_s = agreed(clocked(step))
    steps = min(max(LEAST_STEPS, int(ENOUGH_S / one_s)), MOST_STEPS)
    step_s = slowest([clocked(step) for _ in range(steps)])
    del step
    alone = alone_step(case, shape)
    alone()
    dist.barrier()
    return {"step_s": step_s, "alone_s": slowest([clocked(alone) for _ in range(LEAST_STEPS)])}


def clocked(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def agreed(seconds: float) -> float:
    """The most of all ranks, so that all make as many steps."""
    most = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float(most[0])


def slowest(mine: list[float]) -> list[float]:
    """The steps of the rank whose median is longest."""
    every: list[list[float]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(every, mine)
    return max(every, key=statistics.median)


def batch(case: dict[str, Any], shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    sequences = case["micro_batch"] * case["micro_batches"]
    ids = torch.randint(shape.vocabulary, (sequences, shape.tokens + 1))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def optimizer(module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=1e-4, foreach=False)


def trained(case: dict[str, Any], module: torch.nn.Module, shape: Shape, sync: Callable[[bool], Any]) -> Step:
    """Forward and backward of every micro-batch, then the update; `sync` is told whether it is the last."""
    inputs, targets = (each.split(case["micro_batch"]) for each in batch(case, shape))
    update, last = optimizer(module), case["micro_batches"] - 1

    def step() -> None:
        for number, (x, y) in enumerate(zip(inputs, targets, strict=True)):
            with sync(number == last):
                loss_of(module(x), y).backward()
        update.step()
        update.zero_grad()

    return step


class Whatever:
    """A context that does nothing."""

    def __init__(self, *told: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failure: object) -> None:
        pass


def ddp(case: dict[str, Any], shape: Shape) -> Step:
    module = DistributedDataParallel(Decoder(shape), gradient_as_bucket_view=True)
    return trained(case, module, shape, lambda is_last: Whatever() if is_last else module.no_sync())


def fsdp(case: dict[str, Any], shape: Shape) -> Step:
    if case["way"] == "hsdp":
        mesh = init_device_mesh("cpu", (case["ranks"] // 2, 2), mesh_dim_names=("replica", "shard"))
    else:
        mesh = init_device_mesh("cpu", (case["ranks"],))
    module = Decoder(shape)
    for block in module.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(module, mesh=mesh, reshard_after_forward=True)
    return trained(case, module, shape, Whatever)


def tensor(case: dict[str, Any], shape: Shape) -> Step:
    mesh, is_split = init_device_mesh("cpu", (case["ranks"],)), case["way"] == "sp"
    module = Decoder(shape)
    layout = Shard(1) if is_split else Replicate()
    norm = SequenceParallel() if is_split else None
    whole = PrepareModuleInput(input_layouts=layout, desired_input_layouts=Replicate())
    ends = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=layout),
        "norm": norm,
        "head": ColwiseParallel(input_layouts=layout, output_layouts=Shard(-1), use_local_output=False),
    }
    inside = {
        "attention_norm": norm,
        "attention": whole,
        **{f"attention.w{name}": ColwiseParallel() for name in "qkv"},
        "attention.wo": RowwiseParallel(output_layouts=layout),
        "feed_norm": norm,
        "feed": whole,
        "feed.gate": ColwiseParallel(),
        "feed.up": ColwiseParallel(),
        "feed.down": RowwiseParallel(output_layouts=layout),
    }
    parallelize_module(module, mesh, {name: each for name, each in ends.items() if each})
    for block in module.blocks:
        parallelize_module(block, mesh, {name: each for name, each in inside.items() if each})
    return trained(case, module, shape, lambda is_last: loss_parallel())


def pipeline(case: dict[str, Any], shape: Shape) -> Step:
    rank, ranks = dist.get_rank(), case["ranks"]
    module = Decoder(shape, rank, ranks)
    stage = PipelineStage(module, rank, ranks, torch.device("cpu"))
    kind = ScheduleGPipe if case["way"] == "gpipe" else Schedule1F1B
    schedule = kind(stage, case["micro_batches"], loss_fn=loss_of)
    inputs, targets = batch(case, shape)
    update = optimizer(module)

    def step() -> None:
        schedule.step(*((inputs,) if rank == 0 else ()), **({"target": targets} if rank == ranks - 1 else {}))
        update.step()
        update.zero_grad()

    return step


def alone_step(case: dict[str, Any], shape: Shape) -> Step:
    """The compute part: all of the network, or this rank's stage, without any message."""
    if case["way"] in ("gpipe", "1f1b"):
        return stage_alone(case, shape)
    return trained(case, Decoder(shape), shape, Whatever)


def stage_alone(case: dict[str, Any], shape: Shape) -> Step:
    rank, ranks = dist.get_rank(), case["ranks"]
    module = Decoder(shape, rank, ranks)
    inputs, targets = (each.split(case["micro_batch"]) for each in batch(case, shape))
    update = optimizer(module)

    def step() -> None:
        for ids, aims in zip(inputs, targets, strict=True):
            x = ids if rank == 0 else torch.randn(*ids.shape, shape.hidden, requires_grad=True)
            y = module(x)
            if rank == ranks - 1:
                loss_of(y, aims).backward()
            else:
                y.backward(torch.ones_like(y))
        update.step()
        update.zero_grad()

    return step


WAYS: Final = {
    "ddp": ddp,
    "fsdp": fsdp,
    "hsdp": fsdp,
    "tp": tensor,
    "sp": tensor,
    "gpipe": pipeline,
    "1f1b": pipeline,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
