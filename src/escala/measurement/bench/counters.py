"""Joules of energy counters as watts. Knows RAPL's files; invents nothing where there is no counter."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from escala.formats.bench_record import Power

RAPL: Final = Path("/sys/class/powercap")
NO_COUNTER: Final = Power(counter="no counter")
Joules = Callable[[], float | None]


def watts(read: Joules, work: Callable[[], object]) -> float | None:
    """Counted joules per second of `work`; None where the counter stopped, or began again from zero."""
    before, began = read(), time.perf_counter()
    work()
    after, spent = read(), time.perf_counter() - began
    if before is None or after is None or after < before:
        return None
    return (after - before) / spent


def rapl_j(folder: Path) -> float | None:
    """Joules of all processor packages; None where no counter can be read (it needs root on most systems)."""
    try:
        counts = [int((package / "energy_uj").read_text()) for package in packages(folder)]
    except (OSError, ValueError):
        return None
    return sum(counts) * 1e-6 if counts else None


def packages(folder: Path) -> list[Path]:
    """The zones of whole processor packages; those inside them (cores, memory) have a second number."""
    found = sorted(folder.glob("*rapl:[0-9]*")) if folder.is_dir() else []
    return [package for package in found if package.name.count(":") == 1]
