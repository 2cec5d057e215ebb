"""What a watch found, as data: schema escala/watch@1. Sums nothing up itself."""

from dataclasses import dataclass
from typing import Final

from escala.measurement.runrecord import RunRecord
from escala.measurement.watch.findings import Finding

WATCH_SCHEMA: Final = "escala/watch@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One command on one node: how it ended, what its samples show, its record as `escala record` makes it.

    `exit_code` is 128 plus the number of the signal that ended it. `gaps` says what could not be sampled and
    why, `sampling_cpu_s` is the processor time that sampling took. `run` is None where no file could be read.
    """

    schema: str
    escala: str
    command: tuple[str, ...]
    folder: str
    exit_code: int
    began: str
    ended: str
    duration_s: float
    every_s: float
    sampling_cpu_s: float
    findings: tuple[Finding, ...]
    gaps: tuple[str, ...]
    run: RunRecord | None
