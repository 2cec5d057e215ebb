"""Joules of processor packages since the first reading, though a counter starts again. Reads RAPL alone."""

from pathlib import Path
from typing import Final

from escala.measurement.bench.counters import RAPL, packages
from escala.measurement.sampling.sample import PackageUse

MICRO: Final = 1e-6


class Packages:
    """The counters of a node; none where no package can be read, and `gap` says why."""

    def __init__(self, folder: Path = RAPL) -> None:
        found = packages(folder)
        self._counts = {zone: count for zone in found if (count := _count(zone / "energy_uj")) is not None}
        self._sums = dict.fromkeys(self._counts, 0)
        self.gap = "" if self._counts else _why(found)

    def use(self) -> tuple[PackageUse, ...]:
        """Joules of each package; one that cannot be read any more stays where it was."""
        for zone, before in self._counts.items():
            now = _count(zone / "energy_uj")
            if now is not None:
                self._sums[zone] += _passed(before, now, _count(zone / "max_energy_range_uj"))
                self._counts[zone] = now
        return tuple(
            PackageUse(name=zone.name, energy_j=sum_uj * MICRO) for zone, sum_uj in self._sums.items()
        )


def _passed(before: int, now: int, most: int | None) -> int:
    """What was counted between two readings; a counter that went back began again after its highest value."""
    return now - before if now >= before else now + (most or before) - before


def _count(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _why(found: list[Path]) -> str:
    if found:
        return "no energy of processors: RAPL's counters can be read by root only"
    return "no energy of processors: there is no RAPL counter here"
