"""A rank of a run whose ranks are killed: resumes, trains, saves every few steps, notes what it did."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from planned import Run

from escala.training.checkpoint import Checkpoints, latest, load
from escala.training.launch import Place
from escala.training.launch.join import join, store_of
from escala.training.launch.watchdog import Watchdog
from parallel.oracle import plan

EVERY, PAUSE_S = 3, 0.03


def train(place: Place, arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    join(place, "gloo")
    run = Run(plan(dp=place.ranks, zero=3, reshard=True, shard=place.ranks))
    whole = latest(folder / "checkpoints")
    if whole is not None:
        run.state = load(whole, run.state).state
    (folder / f"pid-{place.restarts}-{place.rank}").write_text(str(os.getpid()))
    notes = (folder / f"steps-{place.restarts}-{place.rank}.jsonl").open("w", buffering=1)
    notes.write(json.dumps({"from": run.state.step}) + "\n")
    is_async = place.restarts % 2 == 1
    with (
        Checkpoints(folder / "checkpoints", is_async=is_async) as checkpoints,
        Watchdog(store_of(place, "hang"), folder) as watchdog,
    ):
        while not asked(folder):
            watchdog.step(run.state.step + 1)
            (loss,) = run.train(run.state.step + 1)
            notes.write(json.dumps({"step": run.state.step, "loss": loss}) + "\n")
            time.sleep(PAUSE_S)
            if run.state.step % EVERY == 0:
                with watchdog.phase("saving"):
                    checkpoints.save(run.state)
    dist.destroy_process_group()
    return 0


def asked(folder: Path) -> bool:
    """Whether the run is to end; all ranks hear the same."""
    answer = torch.tensor([float((folder / "end").exists())])
    dist.all_reduce(answer, dist.ReduceOp.MAX)
    return bool(answer)
