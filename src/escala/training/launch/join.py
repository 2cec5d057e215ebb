"""Joins this process with the other ranks of its start. Needs torch.

torchrun keeps one store for all starts of a run, in which ranks that were started again find the addresses of
the dead ones and fail to connect: so each start has its own part of the store.
"""

import os
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from escala.training.launch.place import Place

BACKENDS: Final = {"cuda": "cpu:gloo,cuda:nccl", "cpu": "gloo"}
"""Of training, by kind of device: what lies on the processor, such as a wish to stop, goes over gloo."""


def join(place: Place, backend: str, *, patience: timedelta = timedelta(minutes=30)) -> None:
    """Make the process group of all ranks; collectives wait for each other as long as patience lasts."""
    dist.init_process_group(
        backend,
        store=store_of(place, "ranks", is_host=_is_host(place)),
        rank=place.rank,
        world_size=place.ranks,
        timeout=patience,
    )


def store_of(place: Place, purpose: str, *, is_host: bool = False) -> Any:
    """A connection to the part of the common store that belongs to this start and this purpose."""
    if place.ranks == 1:
        return dist.HashStore()
    store = dist.TCPStore(place.address, place.port, is_master=is_host, wait_for_workers=False)
    return dist.PrefixStore(f"escala/{place.restarts}/{purpose}", store)


def _is_host(place: Place) -> bool:
    """Whether the store lives in this process: in rank 0, where no launcher keeps it."""
    return place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)
