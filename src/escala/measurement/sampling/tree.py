"""What a process and all its descendants used, though some of them end in between. Knows psutil's processes.

The time and the bytes of a child that ended are in its parent's sums once the parent waited for it, so the
sums of the living are those of all. Processes that outlive their parent are followed as long as they live.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import psutil

from escala.measurement.sampling.sample import CommandUse

PAUSE: Final = 100
"""Reading proportional memory may take one part in so many of the time."""
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Amounts:
    """Sums of processes: processor seconds, bytes read and written; None where nobody counts bytes."""

    cpu_s: float = 0.0
    read_bytes: float | None = None
    written_bytes: float | None = None


class Tree:
    """The descendants of a process, and the process itself."""

    def __init__(self, pid: int) -> None:
        self._tops: dict[Any, Amounts] = {psutil.Process(pid): Amounts()}
        """The process and orphans: what they used is in no other's sums once they ended."""
        self._known: set[Any] = set()
        self._ended = Amounts()
        self._proportional_due_s = 0.0
        self._highest = self._began = Amounts()
        self._began = self._sums(self._processes())

    def use(self, interval_s: float) -> CommandUse:
        """What the tree used since the beginning, and holds now."""
        processes = self._processes()
        before, now = self._highest, self._sums(processes)
        busy_s = now.cpu_s - before.cpu_s
        return CommandUse(
            processes=len(processes),
            cpu_s=now.cpu_s - self._began.cpu_s,
            busy_cores=busy_s / interval_s if interval_s > 0 else 0.0,
            resident_bytes=float(sum(_each(processes, lambda one: one.memory_info().rss))),
            proportional_bytes=self._proportional_bytes(processes),
            read_bytes=_since(now.read_bytes, self._began.read_bytes),
            written_bytes=_since(now.written_bytes, self._began.written_bytes),
        )

    def _processes(self) -> list[Any]:
        """All that live, or ended and were not waited for."""
        for one in [top for top in self._tops if not _is_there(top)]:
            self._ended = _plus(self._ended, self._tops.pop(one))
        found = {each for top in self._tops for each in (top, *_descendants(top))}
        for orphan in [one for one in self._known - found if _is_there(one)]:
            self._tops[orphan] = Amounts()
            found |= {orphan, *_descendants(orphan)}
        self._known = found
        return sorted(found, key=lambda one: int(one.pid))

    def _sums(self, processes: Iterable[Any]) -> Amounts:
        """Sums of the living and of the tops that ended; never less than before."""
        total = self._ended
        for one in processes:
            amounts = _amounts(one)
            total = _plus(total, amounts)
            if one in self._tops:
                self._tops[one] = amounts
        self._highest = _highest(self._highest, total)
        return self._highest

    def _proportional_bytes(self, processes: Iterable[Any]) -> float | None:
        """Memory with shared pages counted once; None while its next reading is not due, or none works."""
        begin_s = time.monotonic()
        if begin_s < self._proportional_due_s:
            return None
        found = _each(processes, lambda one: one.memory_full_info().pss)
        end_s = time.monotonic()
        self._proportional_due_s = end_s + PAUSE * (end_s - begin_s)
        return float(sum(found)) if found else None


def _is_there(one: Any) -> bool:
    try:
        return bool(one.is_running())
    except psutil.Error:
        return False


def _descendants(one: Any) -> list[Any]:
    try:
        return list(one.children(recursive=True))
    except psutil.Error:
        return []


def _each(processes: Iterable[Any], read: Callable[[Any], Read]) -> list[Read]:
    """What is read of every process that still can be read."""
    found = []
    for one in processes:
        try:
            found.append(read(one))
        except (psutil.Error, AttributeError):  # PSS is known on Linux only
            continue
    return found


def _amounts(one: Any) -> Amounts:
    """Sums of one process and of its children that it waited for."""
    times = _each([one], lambda process: process.cpu_times())
    moved = _each([one], lambda process: process.io_counters())
    return Amounts(
        cpu_s=sum(t.user + t.system + t.children_user + t.children_system for t in times),
        read_bytes=float(moved[0].read_bytes) if moved else None,
        written_bytes=float(moved[0].write_bytes) if moved else None,
    )


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return _by(lambda a, b: a + b, one, other)


def _highest(one: Amounts, other: Amounts) -> Amounts:
    return _by(max, one, other)


def _by(join: Callable[[float, float], float], one: Amounts, other: Amounts) -> Amounts:
    return Amounts(
        join(one.cpu_s, other.cpu_s),
        _joined(join, one.read_bytes, other.read_bytes),
        _joined(join, one.written_bytes, other.written_bytes),
    )


def _joined(join: Callable[[float, float], float], one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return join(one, other)


def _since(now: float | None, began: float | None) -> float | None:
    return None if now is None else now - (began or 0.0)
