"""The ranks of one bench, and the groups that share a link level. Knows torch.distributed and no timing.

A rank alone needs no torch.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from escala.errors import InvalidInput
from escala.formats.bench_record import NETWORK, NODE
from escala.measurement.bench.levels import members, parts
from escala.measurement.bench.request import is_launched

PATIENCE: Final = timedelta(seconds=60)
BACKENDS: Final = {"cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks that talk over one link level, by their numbers; `is_whole` if there are no others on it."""

    level: str
    members: tuple[int, ...]
    place: int
    handle: Any
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This rank among all; alone it is rank 0 of 1. `control` carries decisions, over gloo."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    backend: str = "none"
    groups: tuple[Group, ...] = ()
    control: Any = None

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in every rank."""
        found = [value] * self.size
        if self.size > 1:
            import torch.distributed as dist

            dist.all_gather_object(found, value, group=self.control)
        return found

    def most(self, value: float) -> float:
        """The largest of the ranks' values, in every rank; nobody goes on before all have asked."""
        if self.size == 1:
            return value
        import torch
        import torch.distributed as dist

        found = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.control)
        return float(found[0])


def joined(kind: str, patience: timedelta = PATIENCE, levels: tuple[str, ...] = (NODE, NETWORK)) -> Ranks:
    """This process among the ranks that a launcher started, or alone.

    Ranks wait so long for each other, and have a group of those that share each level.
    """
    if not is_launched() or int(os.environ["WORLD_SIZE"]) == 1:
        return Ranks()
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if size % local_size:
        raise InvalidInput(f"{size} ranks are not nodes of {local_size}; launch as many in every node")
    dist.init_process_group(BACKENDS[kind], timeout=patience)
    return Ranks(
        rank=rank,
        size=size,
        local_rank=int(os.environ.get("LOCAL_RANK", rank % local_size)),
        local_size=local_size,
        backend=BACKENDS[kind],
        groups=_groups(rank, size, local_size, levels),
        control=None if kind == "cpu" else dist.new_group(backend="gloo", timeout=patience),
    )


def left(ranks: Ranks) -> None:
    """Leave the other ranks."""
    if ranks.size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()


def _groups(rank: int, size: int, local_size: int, levels: tuple[str, ...]) -> tuple[Group, ...]:
    """The groups of this rank; every rank has to make those of the others too, in the same order."""
    import torch.distributed as dist

    mine: list[Group] = []
    for level in levels:
        whole = {members(level, each, size, local_size) for each in range(size)}
        every = {part for each in whole for part in parts(each)}
        for ranks in sorted(every, key=lambda part: (len(part), part)):
            handle = dist.new_group(list(ranks), timeout=PATIENCE)
            if rank in ranks:
                place, is_whole = ranks.index(rank), ranks in whole
                mine.append(Group(level=level, members=ranks, place=place, handle=handle, is_whole=is_whole))
    return tuple(mine)
