"""Which rank keeps the others waiting, and for what: judged by what each rank reports. Loads no torch.

PyTorch numbers the collectives of every group on each rank. In a hang, the rank whose number stays behind is
the one that has not come.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from escala.training.launch.blame import HANG

WHOLE: Final = "default_pg"
"""PyTorch's name of the group of all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InGroup:
    """The last collective that a rank entered in one of its groups, and whether it still waits in it."""

    group: str
    name: str
    ranks: tuple[int, ...]
    count: int
    operation: str
    is_open: bool
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one rank is doing: its step, the phase in it, the innermost line, and its groups.

    `is_inside` is true where that line is PyTorch's own communication: the rank waits for another, also where
    nothing is numbered, as in the sends of a pipeline.
    """

    rank: int
    step: int
    phase: str
    line: str
    is_inside: bool
    groups: tuple[InGroup, ...]

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for another rank."""
        return self.is_inside or any(each.is_open for each in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A collective that some ranks have entered and others have not."""

    entered: InGroup
    late: tuple[int, ...]
    waiting: int


def verdict(reports: Mapping[int, Report], ranks: int) -> str | None:
    """Which rank has not come to what, in one line; None where nobody waits for anybody."""
    silent = [rank for rank in range(ranks) if rank not in reports]
    if not any(each.is_waiting for each in reports.values()) and not silent:
        return None
    missing = _missing(reports)
    if silent:
        return f"{HANG}{_ranks(silent)} {_do(silent)} not answer{_others(missing)}"
    if missing is not None:
        return f"{HANG}{_told(missing, reports)}"
    free = [each for each in reports.values() if not each.is_waiting]
    if free:
        others = [each.rank for each in reports.values() if each.is_waiting]
        wait = "waits" if len(others) == 1 else "wait"
        return f"{HANG}{_where(free[0])}, and {_ranks(others)} {wait} for a message"
    return f"{HANG}all ranks wait in {_open(reports)} and it does not end: look at the network between them"


def _missing(reports: Mapping[int, Report]) -> Missing | None:
    """The collective that has been waited in longest; one whose late ranks wait for nobody before others."""
    found = [each for name in _names(reports) if (each := _in_group(name, reports)) is not None]
    return min(found, key=lambda each: (_some_wait(each.late, reports), -each.entered.since_s), default=None)


def _names(reports: Mapping[int, Report]) -> list[str]:
    return list(dict.fromkeys(each.group for report in reports.values() for each in report.groups))


def _in_group(name: str, reports: Mapping[int, Report]) -> Missing | None:
    inside = {rank: each for rank, report in reports.items() for each in report.groups if each.group == name}
    first = max((each for each in inside.values() if each.is_open), key=lambda each: each.count, default=None)
    if first is None:
        return None
    late = [rank for rank in first.ranks if rank not in inside or inside[rank].count < first.count]
    waiting = [each for each in inside.values() if each.count == first.count and each.is_open]
    longest = max(waiting, key=lambda each: each.since_s)
    return Missing(entered=longest, late=tuple(late), waiting=len(waiting)) if late else None


def _some_wait(late: tuple[int, ...], reports: Mapping[int, Report]) -> bool:
    return any(rank in reports and reports[rank].is_waiting for rank in late)


def _told(missing: Missing, reports: Mapping[int, Report]) -> str:
    late, count = list(missing.late), missing.waiting
    wait = "the other waits" if count == 1 else f"the other {count} wait"
    where = _where(reports[late[0]])
    has = "has" if len(late) == 1 else "have"
    return (
        f"{_ranks(late)} {has} not entered {_collective(missing.entered)}, in which {wait} since "
        f"{missing.entered.since_s:.0f} s; {where}"
    )


def _collective(entered: InGroup) -> str:
    operation = entered.operation.rpartition(":")[2]
    if entered.name == WHOLE:
        return f"{operation} #{entered.count} of all ranks"
    name = f" ({entered.name})" if entered.name not in ("", "undefined") else ""
    return f"{operation} #{entered.count} of ranks {', '.join(map(str, entered.ranks))}{name}"


def _where(report: Report) -> str:
    return f"rank {report.rank} is in step {report.step}, {report.phase}, at {report.line}"


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _do(ranks: list[int]) -> str:
    return "does" if len(ranks) == 1 else "do"


def _others(missing: Missing | None) -> str:
    return f"; others wait in {_collective(missing.entered)}" if missing is not None else ""


def _open(reports: Mapping[int, Report]) -> str:
    every = [each for report in reports.values() for each in report.groups if each.is_open]
    return _collective(max(every, key=lambda each: each.since_s)) if every else "messages"
