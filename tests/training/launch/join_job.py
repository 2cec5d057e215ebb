"""Ranks that no torchrun keeps a store for meet at rank 0; prints what they hear as one JSON line."""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from escala.measurement.job.orphan import end_with_launcher
from escala.training.launch.join import join, store_of
from escala.training.launch.place import Launcher, Place

RANKS = 2


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def heard(place: Place) -> dict[str, Any]:
    join(place, "gloo")
    total = torch.tensor([float(place.rank + 1)])
    dist.all_reduce(total)
    store_of(place, "hang").set(f"{place.rank}", "here")
    dist.barrier()
    found = store_of(place, "hang").check([f"{rank}" for rank in range(RANKS)])
    dist.destroy_process_group()
    return {"total": float(total), "all are here": found}


def fork(folder: Path, place: Place) -> int:
    child = os.fork()
    if child == 0:
        end_with_launcher()
        (folder / f"{place.rank}.json").write_text(json.dumps(heard(place)))
        os._exit(0)
    return child


if __name__ == "__main__":
    folder, port = Path(sys.argv[1]), free_port()
    places = [
        Place(launcher=Launcher.SLURM, rank=rank, ranks=RANKS, local_rank=rank, local_ranks=RANKS, port=port)
        for rank in range(RANKS)
    ]
    for child in [fork(folder, place) for place in places]:
        assert os.waitpid(child, 0)[1] == 0
    print(json.dumps({"ranks": [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]}))
