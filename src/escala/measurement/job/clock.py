"""Steps against the clock, and what all ranks agree on. Knows no practice and no trace."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from escala.measurement.bench.device import Device
from escala.measurement.bench.ranks import Ranks
from escala.measurement.bench.rounds import Progress, Stop
from escala.measurement.job.job import Runner

WARMUP_STEPS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a job runs and who is told: the ranks, the device, a wish to stop, progress."""

    ranks: Ranks
    device: Device
    stop: Stop
    progress: Progress

    def is_stopped(self) -> bool:
        """Whether a person asked any rank to stop; all ranks hear the same."""
        return bool(self.ranks.most(float(self.stop.is_asked)))

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Each time of the rank that took longest."""
        return [max(column) for column in zip(*self.ranks.gather(list(seconds)), strict=True)]


def timed(runner: Runner, steps: int, wait: Callable[[], None]) -> float:
    """Seconds of a step: so many in a row / their number."""
    wait()
    began_s = time.perf_counter()
    for _ in range(steps):
        runner.step()
    wait()
    return (time.perf_counter() - began_s) / steps
