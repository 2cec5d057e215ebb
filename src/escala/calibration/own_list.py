"""Which numbers a user's own runs may move, and the prior of each: data/own.toml and the published fit."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from operator import mul
from typing import Final

from escala.calibration.free import free_parameters
from escala.catalog.fitted import fitted
from escala.catalog.loader import read_toml
from escala.errors import InvalidInput
from escala.model.own import ACCELERATOR, ENGINE, LINK, OPERATIONS, OwnNumber
from escala.model.own_numbers import changed, values_of
from escala.model.problem import Problem

LIMIT: Final = 3.0  # prior standard deviations; what own runs ask beyond is more likely a wrong plan or file
_USUAL: Final = ("gemm_level", "elementwise_passes", "dispatch_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One kind of number of the list: its prior where no fit has one, and which run would inform it."""

    of: str
    field: str
    sd: float
    informed_by: str
    measured_sd: float | None = None
    is_share: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFree:
    """One number that own runs may move, with the prior of the factor's logarithm and its ends."""

    number: OwnNumber
    before: float
    sd: float
    is_measured: bool
    high: float
    informed_by: str

    @property
    def low(self) -> float:
        """The least logarithm of the factor."""
        return -LIMIT * self.sd

    def touches(self, problem: Problem) -> bool:
        """Whether the problem has the number."""
        return bool(values_of(problem, self.number))

    def on(self, problem: Problem, logarithm: float) -> Problem:
        """The problem with the number at exp(logarithm) times its value."""
        return changed(problem, self.number, partial(mul, math.exp(logarithm)))


@cache
def listed() -> tuple[Listed, ...]:
    """The list, in the order of the file."""
    tables = read_toml(files("escala.calibration") / "data" / "own.toml")
    return tuple(Listed(**table) for table in tables["number"])


def own_numbers(problems: Iterable[Problem]) -> tuple[OwnFree, ...]:
    """Every number of the list that stands in one of the problems, each once."""
    found: dict[OwnNumber, OwnFree] = {}
    for problem in problems:
        for each in listed():
            for number in _numbers(problem, each):
                free = _free(problem, each, number)
                _refuse_two_records(found.setdefault(number, free), free)
    return tuple(found.values())


def _refuse_two_records(one: OwnFree, other: OwnFree) -> None:
    """A factor belongs to one value of a device or a measured link; catalog links differ by their ports."""
    is_bound = one.number.of in (ACCELERATOR, OPERATIONS) or one.is_measured or other.is_measured
    if is_bound and not math.isclose(one.before, other.before, rel_tol=1e-9):
        raise InvalidInput(
            f"{one.number.field} of {one.number.name} is {one.before:.6g} in one plan and {other.before:.6g}"
            " in another; calibrate the runs of each bench or cluster file alone"
        )


def _numbers(problem: Problem, given: Listed) -> Iterator[OwnNumber]:
    """The numbers of one kind that a problem holds; of links those that some pair of devices crosses."""
    device = problem.accelerator
    names = {
        ENGINE: [problem.engine.name] if given.field in engine_fields(problem.engine.name) else [],
        ACCELERATOR: [device.name],
        OPERATIONS: [device.name],
        LINK: [link.name for link in problem.cluster.crossed_links],
    }[given.of]
    for name in dict.fromkeys(names):
        between = device.name if given.of == LINK else ""
        number = OwnNumber(of=given.of, name=name, field=given.field, accelerator=between)
        if any(values_of(problem, number)):
            yield number


def engine_fields(engine: str) -> tuple[str, ...]:
    """The software vector of an engine: its own numbers in the published fit, else the usual three."""
    fields = {each.field for each in listed() if each.of == ENGINE}
    named = [f.field for f in free_parameters() if f.of == ENGINE and engine in f.names and f.field in fields]
    return tuple(named) or _USUAL


def _free(problem: Problem, given: Listed, number: OwnNumber) -> OwnFree:
    is_measured = bool(problem.cluster.measured) and given.measured_sd is not None
    sd = given.measured_sd if is_measured and given.measured_sd else _left_by_fit(problem, number) or given.sd
    before = values_of(problem, number)[0]
    room = -math.log(before) if given.is_share and not is_measured and before < 1.0 else math.inf
    return OwnFree(
        number=number,
        before=before,
        sd=sd,
        is_measured=is_measured,
        high=min(LIMIT * sd, room),
        informed_by=given.informed_by,
    )


def _left_by_fit(problem: Problem, number: OwnNumber) -> float:
    """Standard deviation that the published fit leaves; 0 where it has no such number."""
    device = problem.accelerator
    names = (number.name,) if number.of == ENGINE else (device.name, device.architecture)
    found = [each.sd for each in fitted().factors if each.touches(number.of, names, number.field)]
    return math.hypot(*found)
