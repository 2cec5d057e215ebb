"""A problem under the factors of own runs, and back. Knows where each number stands; fits nothing."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import mul
from typing import Any, Final

from escala.errors import InvalidInput
from escala.model.cluster import Accelerator
from escala.model.own import ACCELERATOR, ENGINE, LINK, OPERATIONS, Moved, Own, OwnFactor, OwnNumber, OwnRuns
from escala.model.problem import Problem

Change = Callable[[float], float]
SAID: Final = 0.005  # a factor nearer to 1 is counted, not named


def values_of(problem: Problem, number: OwnNumber) -> tuple[float, ...]:
    """What the problem has for a number, each value once: of links of one name there may be several."""
    found = (getattr(owner, number.field) for owner in _owners(problem, number))
    return tuple(sorted({value for value in found if value is not None}))


def changed(problem: Problem, number: OwnNumber, change: Change) -> Problem:
    """The problem with the number changed wherever it stands."""

    def new(owner: Any) -> Any:
        value = getattr(owner, number.field)
        return owner if value is None else replace(owner, **{number.field: change(value)})

    if not values_of(problem, number):
        return problem
    if number.of == ENGINE:
        return replace(problem, engine=replace(problem.engine, time=new(problem.engine.time)))
    cluster = problem.cluster
    if number.of == LINK:
        links = tuple(new(link) if link.name == number.name else link for link in cluster.links)
        return replace(problem, cluster=replace(cluster, links=links))

    def device(old: Accelerator) -> Any:
        if old.name != number.name:
            return old
        return replace(old, operations=new(old.operations)) if number.of == OPERATIONS else new(old)

    groups = tuple(replace(group, accelerator=device(group.accelerator)) for group in cluster.groups)
    return replace(problem, cluster=replace(cluster, groups=groups))


def with_own(problem: Problem, runs: OwnRuns) -> Problem:
    """The problem with the factors of own runs on the numbers that they name; others stay as they are."""
    plain, moved = without_own(problem), []
    for factor in runs.factor:
        for value in values_of(plain, factor):
            _refuse_other_record(plain, factor, value)
            moved.append(Moved(factor=factor, before=value, after=value * factor.factor))
    found = plain
    for factor in runs.factor:
        found = changed(found, factor, partial(mul, factor.factor))
    return replace(found, own=Own(runs=runs, moved=tuple(moved)))


def without_own(problem: Problem) -> Problem:
    """The problem as it was before own runs; without any it stays as it is."""
    if problem.own is None:
        return problem
    found = problem
    for each in problem.own.moved:
        found = changed(found, each.factor, partial(_before, each))
    return replace(found, own=None)


def own_words(problem: Problem) -> tuple[str, ...]:
    """Which numbers of the problem own runs moved, by how much, and which runs those were; empty without."""
    if problem.own is None:
        return ()
    runs, named = problem.own.runs, dict.fromkeys(each.factor for each in problem.own.moved)
    far = [each for each in named if abs(each.factor - 1.0) >= SAID]
    words = [f"{each.name} {each.field} × {each.factor:.3f}" for each in far]
    more = len(named) - len(far)
    words += [f"{more} more by less than {100 * SAID:g} %"] if more else []
    ran = f"{len(runs.runs)} own run{'s' * (len(runs.runs) != 1)} ({runs.date})"
    if not words:
        return (f"calibration with {ran} of {'; '.join(runs.machines)}: moves nothing here",)
    return (f"calibrated with {ran}: {words[0]}", *words[1:])


def _before(moved: Moved, value: float) -> float:
    return moved.before if value == moved.after else value


def _owners(problem: Problem, number: OwnNumber) -> Iterator[Any]:
    """Every record of the problem that holds the number."""
    if number.of == ENGINE and problem.engine.name == number.name:
        yield problem.engine.time
    devices = [group.accelerator for group in problem.cluster.groups]
    mine = [device for device in devices if device.name == number.name]
    if number.of == ACCELERATOR:
        yield from mine
    if number.of == OPERATIONS:
        yield from (device.operations for device in mine if device.operations is not None)
    if number.of == LINK and problem.accelerator.name == number.accelerator:
        yield from (link for link in problem.cluster.links if link.name == number.name)


def _refuse_other_record(problem: Problem, factor: OwnFactor, value: float) -> None:
    """A factor on a device or on a measured link belongs to the value that it was fitted beside."""
    is_bound = factor.of in (ACCELERATOR, OPERATIONS) or (factor.of == LINK and factor.is_measured)
    if is_bound and not math.isclose(value, factor.before, rel_tol=1e-9):
        raise InvalidInput(
            f"the calibration was made beside {factor.field} {factor.before:.6g} of {factor.name}, and"
            f" {problem.cluster.name} has {value:.6g}; calibrate again with runs planned on this cluster,"
            " or leave out --calibration"
        )
