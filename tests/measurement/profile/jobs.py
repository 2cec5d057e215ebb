"""Training jobs that wait for one thing only, run and traced in a process of their own: jobs.py NAME FOLDER.

Each is so extreme that its verdict holds on a busy machine, too.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import distributed, nn
from torch.profiler import ProfilerActivity, profile, schedule

Step = Callable[[], None]


class Slow(torch.utils.data.Dataset):
    """Samples that take 10 ms each to read."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.010)
        return torch.zeros(32)


def trained(net: nn.Module, batches: Iterator[torch.Tensor]) -> Step:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        net(next(batches)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def forever(batch: torch.Tensor) -> Iterator[torch.Tensor]:
    while True:
        yield batch


def input_bound() -> Step:
    loader = torch.utils.data.DataLoader(Slow(), batch_size=16)
    return trained(nn.Linear(32, 32), iter(loader))


def compute_bound() -> Step:
    net = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4)))
    return trained(net, forever(torch.randn(1024, 1024)))


def launch_bound() -> Step:
    net = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(400)))
    return trained(net, forever(torch.randn(2, 4)))


def communication_bound() -> Step:
    step, gradients = trained(nn.Linear(32, 32), forever(torch.randn(4, 32))), torch.zeros(2**24)

    def synchronised() -> None:
        step()
        for _ in range(2):
            distributed.all_reduce(gradients)

    return synchronised


def traced(step: Step, path: Path) -> None:
    plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True, profile_memory=True
    ) as profiler:
        for _ in range(4):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(path))


def one_of_two(rank: int, folder: str, store: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    traced(communication_bound(), Path(folder) / f"rank{rank}.json")
    distributed.destroy_process_group()


def main(name: str, folder: str) -> None:
    torch.set_num_threads(1)
    if name == "communication":
        store = os.path.join(folder, "store")
        torch.multiprocessing.spawn(one_of_two, (folder, store), 2)
    else:
        jobs = {"input": input_bound, "compute": compute_bound, "launch": launch_bound}
        traced(jobs[name](), Path(folder) / "trace.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
