"""What this rank is doing at this moment, by PyTorch's flight recorder and the Python stack. Needs torch.

The recorder numbers the collectives of gloo and NCCL in C++. An older torch has none for gloo: a report then
knows the stack alone.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from escala.training.launch.hang import InGroup, Report

RECORDERS: Final = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
OWN: Final = str(Path("torch") / "distributed")


def report_of(step: int, phase: str) -> Report:
    """The report of this rank, made in another thread than the one that trains."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return Report(
        rank=dist.get_rank(),
        step=step,
        phase=phase,
        line=_line(frame),
        is_inside=OWN in frame.f_code.co_filename,
        groups=tuple(_groups()),
    )


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(Path(code.co_filename).parts[-2:])}:{frame.f_lineno} in {code.co_name}"


def _groups() -> Iterator[InGroup]:
    """The last collective of each group of this rank."""
    members = _members()
    last = {entry["process_group"][0]: entry for entry in _entries() if not entry["is_p2p"]}
    for group, entry in last.items():
        yield InGroup(
            group=group,
            name=entry["process_group"][1],
            ranks=members.get(group, ()),
            count=entry["collective_seq_id"],
            operation=entry["profiling_name"],
            is_open=not entry["retired"] and entry["state"] != "completed",
            since_s=max(time.time() - entry["time_created_ns"] / 1e9, 0.0),
        )


def _entries() -> list[dict[str, Any]]:
    """What the recorders hold, oldest first."""
    found: list[dict[str, Any]] = []
    for name in RECORDERS:
        dump = getattr(c10d, name, None)
        if dump is not None:
            found += json.loads(dump(includeCollectives=True, onlyActive=False)).get("entries", [])
    return sorted(found, key=lambda entry: entry["time_created_ns"])


def _members() -> dict[str, tuple[int, ...]]:
    """Ranks of each group by its name; PyTorch tells them nowhere else."""
    world = dist.distributed_c10d._world
    return {
        world.pg_names[group]: tuple(sorted(ranks))
        for group, ranks in world.pg_group_ranks.items()
        if group in world.pg_names  # not those of other ranks
    }
