"""What a target can express, as limits of the search for plans. Knows abilities, no target.

Whatever no value of one field can say is said by an ability that the engine lacks, as engines' records do;
what goes with a degree above one (sequence parallelism with TP) by a slice of the space for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from escala.foreign.orders import ANY, Abilities, Order
from escala.model.plan import PLACEMENTS, Compile, ContextKind, Plan, Precision, Schedule
from escala.model.problem import Problem
from escala.model.rejects import has_units
from escala.planning.space import SpaceLimits, divisors

Fixed = dict[str, tuple[int, ...]]
DEGREES: Final = ("tp", "pp", "cp", "ep")
KEPT: Final = ("zero", "reshard", "tp", "sp", "pp", "schedule", "cp", "cp_kind", "recompute", "compile")
"""Fields that the nearest plan keeps where it can; what they leave open is searched."""
GOES_WITH: Final = {"reshard": "zero", "sp": "tp", "schedule": "pp", "cp_kind": "cp"}
"""Fields that mean something only under the value of another."""
PRECISIONS: Final = (Precision.BF16, Precision.FP16, Precision.TF32, Precision.FP32)
"""In the order in which they stand in for one that a target lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """A part of the space: what the engine lacks beside its own, values of fields, one set a slice."""

    lacks: tuple[str, ...]
    slices: tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]
    precision: Precision

    def problem(self, problem: Problem) -> Problem:
        """The problem whose engine lacks what the target cannot express."""
        lacks = tuple(dict.fromkeys((*problem.lacks, *self.lacks)))
        return replace(problem, engine=replace(problem.engine, lacks=lacks))

    def limits(self) -> Iterator[SpaceLimits]:
        """The limits of each slice."""
        for each in self.slices:
            yield SpaceLimits(fixed=dict(each), precision=self.precision)


def narrowed(able: Abilities, order: Order) -> Narrowed | None:
    """The space of all plans that a target can express of an order; None where no number format is left."""
    precision = _precision(able, order)
    if precision is None:
        return None
    return Narrowed(lacks=_lacks(able), slices=tuple(_slices(able, order.problem)), precision=precision)


def keeping(space: Narrowed, able: Abilities, plan: Plan) -> Narrowed:
    """The part of the space that keeps what the target can express of the plan."""
    broken = {name for name in KEPT if not _expresses(able, plan, name)}
    kept = [name for name in KEPT if name not in broken and GOES_WITH.get(name) not in broken]
    own: Fixed = {name: (int(getattr(plan, name)),) for name in kept}
    slices = []
    for each in space.slices:
        given = dict(each)
        merged = {**given, **own}
        if all(set(own[name]) <= set(given[name]) for name in own if name in given):
            slices.append(tuple(sorted(merged.items())))
    return replace(space, slices=tuple(slices))


def _precision(able: Abilities, order: Order) -> Precision | None:
    if order.plan.precision in able.precisions:
        return order.plan.precision
    chip = order.problem.accelerator
    return next((each for each in PRECISIONS if each in able.precisions and has_units(chip, each)), None)


def _lacks(able: Abilities) -> tuple[str, ...]:
    has = {
        **{axis: getattr(able, axis) > 1 for axis in (*DEGREES, "etp")},
        "hsdp": able.hybrid,
        "no-reshard": able.no_reshard,
        "fused-loss": able.fused_loss,
        "compile": any(each is not Compile.OFF for each in able.compiles),
    }
    return tuple(name for name, is_there in has.items() if not is_there)


def _slices(able: Abilities, problem: Problem) -> Iterator[tuple[tuple[str, tuple[int, ...]], ...]]:
    every = divisors(problem.cluster.devices)
    common: Fixed = {
        "zero": able.zero,
        "schedule": (int(Schedule.NONE), *map(int, able.schedules)),
        "split": tuple(map(int, able.splits)),
        "recompute": tuple(map(int, able.recompute)),
        "compile": tuple(map(int, able.compiles)),
    }
    if not able.placements:
        common["placement"] = (PLACEMENTS.index(Plan().placement),)
    for axis in DEGREES:
        if getattr(able, axis) < ANY:
            common[axis] = tuple(degree for degree in every if degree <= getattr(able, axis))
    kinds = tuple(map(int, able.cp_kinds))
    tensor = _split("tp", "sp", tuple(map(int, able.sp)), 0, common.get("tp", every))
    context = _split("cp", "cp_kind", kinds, int(ContextKind.RING), common.get("cp", every))
    for one, other in product(tensor, context):
        yield tuple(sorted({**common, **one, **other}.items()))


def _split(
    axis: str, field: str, able: tuple[int, ...], plain: int, degrees: tuple[int, ...]
) -> Iterator[Fixed]:
    """Limits of an axis and of the field that goes with it; apart where one rank needs another value."""
    if plain in able or max(degrees) == 1:
        yield {axis: degrees, field: tuple(sorted({plain, *able}))}
        return
    yield {axis: (1,), field: (plain,)}
    if able:
        yield {axis: tuple(degree for degree in degrees if degree > 1), field: able}


def _expresses(able: Abilities, plan: Plan, name: str) -> bool:
    value = getattr(plan, name)
    if name in ("tp", "pp", "cp"):
        return bool(value <= getattr(able, name))
    if name == "reshard":
        return bool(value) or plan.zero < 3 or able.no_reshard
    lists = {
        "zero": able.zero,
        "sp": able.sp if plan.tp > 1 else (value,),
        "schedule": able.schedules if plan.pp > 1 else (value,),
        "cp_kind": able.cp_kinds if plan.cp > 1 else (value,),
        "recompute": able.recompute,
        "compile": able.compiles,
    }
    return value in lists[name]
