"""Ranks of which one does not come; prints the last words of each rank of each case as one JSON line."""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ["TORCH_FR_BUFFER_SIZE"] = "200"

import torch
import torch.distributed as dist

from escala.measurement.job.orphan import end_with_launcher
from escala.training.launch.watchdog import Limits, Watchdog

SOON = Limits(step_s=1.5, other_s=1.5, look_s=0.2, answer_s=0.6)


def sleeps(rank: int) -> None:
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    if rank == 2:
        time.sleep(60)
    dist.all_reduce(torch.ones(4))


def skips(rank: int) -> None:
    pair = dist.new_group([1, 2], group_desc="dp")
    if rank != 0:
        dist.all_reduce(torch.ones(4), group=pair)
    if rank == 1:
        dist.all_reduce(torch.ones(4), group=pair)
    time.sleep(0.3)
    dist.barrier()


def forgets_to_send(rank: int) -> None:
    if rank == 0:
        dist.recv(torch.ones(4), 1)
    time.sleep(60)


def stops(rank: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), 19)
    dist.all_reduce(torch.ones(4))


def computes(rank: int) -> None:
    until_s = time.monotonic() + 3
    while time.monotonic() < until_s:
        sum(range(1000))
    dist.barrier()


CASES: dict[str, tuple[int, Callable[[int], None]]] = {
    "sleeps": (3, sleeps),
    "skips": (3, skips),
    "forgets to send": (2, forgets_to_send),
    "stops": (2, stops),
    "computes": (2, computes),
}


def run(folder: Path, ranks: int, work: Callable[[int], None]) -> list[dict[str, Any]]:
    folder.mkdir()
    children = [fork(folder, rank, ranks, work) for rank in range(ranks)]
    ends = [ended(child) for child in children]
    words = [folder / f"{rank}.words" for rank in range(ranks)]
    return [
        {"code": code, "words": json.loads(path.read_text())["message"]["message"] if path.exists() else ""}
        for code, path in zip(ends, words, strict=True)
    ]


def ended(child: int) -> int:
    """The exit code; a rank that was stopped, and waits for ever, is killed."""
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
        if Path(f"/proc/{child}/stat").read_text().split()[2] == "T" and time.monotonic() > until_s - 17:
            os.kill(child, 9)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return 99


def fork(folder: Path, rank: int, ranks: int, work: Callable[[int], None]) -> int:
    child = os.fork()
    if child:
        return child
    os.environ["TORCHELASTIC_ERROR_FILE"] = str(folder / f"{rank}.words")
    sys.stdout = sys.stderr
    end_with_launcher()
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=30),
        )
        with Watchdog(dist.FileStore(f"{folder}/words", ranks), folder, SOON) as watchdog:
            watchdog.step(7)
            work(rank)
    finally:
        os._exit(0 if sys.exc_info()[0] is None else 2)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(json.dumps({name: run(place / name, *case) for name, case in CASES.items()}))
