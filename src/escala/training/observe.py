"""A few steps of a run under the profiler: the trace of every rank, and the most memory that a step holds.

These are steps of the training like all others, only slower; their times are told apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from escala.measurement.job.memory import held_bytes, most_allocated
from escala.measurement.job.trace import ACTIVE, STEPS, WARM, exported
from escala.training.loop import peak_bytes

FIRST: Final = 6
"""Steps before the first that is observed: caches, compilers and connections are warm by then."""
WINDOW: Final = STEPS + 1
"""Traced steps, and one whose allocations are summed."""
LEAST: Final = FIRST + WINDOW + 5
"""A run of fewer steps has too few plain ones left, and is not observed."""


def observed_steps(steps: int, *, is_wanted: bool) -> range:
    """The steps of a session that are observed: none in a short one."""
    return range(FIRST, FIRST + WINDOW) if is_wanted and steps >= LEAST else range(0)


@dataclass(slots=True, kw_only=True)
class Observed:
    """Watches the steps of the window; afterwards the trace lies in the folder, and the peak is known."""

    folder: Path
    rank: int
    device: torch.device
    chunks: Sequence[nn.Module]
    optimizer: Any
    peak_bytes: float | None = None
    _trace: profile | None = field(default=None)

    @property
    def file(self) -> Path:
        """The trace of this rank."""
        return self.folder / f"rank{self.rank}.json.gz"

    def __call__(self, session: int) -> AbstractContextManager[None]:
        """The context of one step of the window."""
        place = session - FIRST
        return self._summed() if place == STEPS else self._traced(place)

    @contextmanager
    def _traced(self, place: int) -> Iterator[None]:
        if place == 0:
            self._trace = self._profiler()
            self._trace.start()
        assert self._trace is not None
        yield
        self._trace.step()
        if place == STEPS - 1:
            self._trace.stop()

    def _profiler(self) -> profile:
        activities = [ProfilerActivity.CPU]
        activities += [ProfilerActivity.CUDA] if self.device.type == "cuda" else []
        return profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=WARM, active=ACTIVE, repeat=1),
            on_trace_ready=lambda seen: exported(seen, self.file),
            record_shapes=True,
            profile_memory=False,
        )

    @contextmanager
    def _summed(self) -> Iterator[None]:
        """What a processor's allocator gave out during a step, on top of what lies there between steps."""
        if self.device.type == "cuda":
            yield
            self.peak_bytes = peak_bytes(self.device)
            return
        before = held_bytes(self.chunks, self.optimizer)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            yield
        self.peak_bytes = before + most_allocated(seen)
