"""A few steps under torch.profiler, and the trace of every rank in one folder. Reads no trace."""

from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from escala.errors import InvalidInput
from escala.inputs import reason
from escala.measurement.job.clock import Setting
from escala.measurement.job.job import Runner

WARM, ACTIVE = 1, 2
STEPS: Final = WARM + ACTIVE


def traced(setting: Setting, runner: Runner, folder: Path) -> None:
    """Write rank0.json.gz, rank1.json.gz ... of the active steps; the profiler warms up in one before."""
    own = folder / f"rank{setting.ranks.rank}.json.gz"
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if setting.device.kind == "cuda" else []
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=WARM, active=ACTIVE, repeat=1),
        on_trace_ready=lambda seen: exported(seen, own),
        record_shapes=True,
        profile_memory=True,
    ) as seen:
        for _ in range(STEPS):
            runner.step()
            seen.step()
    collect(own, setting.ranks.rank, setting.ranks.size, setting.ranks.control)


def exported(seen: profile, own: Path) -> None:
    """Write a trace; where there is no room, the path is told."""
    try:
        seen.export_chrome_trace(str(own))
    except OSError as error:
        place = error.filename or own  # PyTorch packs a trace by way of the usual temporary folder
        raise InvalidInput(
            f"the trace {place} cannot be written ({reason(error)}); make room, or name another"
            " place with --keep-traces"
        ) from None


def collect(own: Path, rank: int, ranks: int, group: Any = None) -> None:
    """The first rank writes the files of the others, which may lie in other nodes, beside its own."""
    if ranks == 1:
        return
    found: list[bytes | None] = [None] * ranks
    dist.gather_object(own.read_bytes(), found if rank == 0 else None, group=group)
    for other, content in enumerate(found):
        if rank == 0 and other and content is not None:
            own.with_name(f"rank{other}.json.gz").write_bytes(content)
