"""What the fit moved, and what it stands on: records before the fit, factors, votes of rows. Fits nothing."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from escala.calibration.free import Free, free_parameters
from escala.calibration.reading import Reading
from escala.calibration.sample import MOST_ROWS, weights
from escala.catalog.accelerators import accelerator, accelerator_quantities, accelerators
from escala.catalog.engines import assumption_settings, engine_settings, engines
from escala.catalog.fitted import Factor, factor_of, fitted

CHIPS: Final = "chips"
SHARED: Final = "shared constants"
FAMILIES: Final = "software that several engines share"
ENGINES: Final = "engines"
GROUPS: Final = (CHIPS, SHARED, FAMILIES, ENGINES)
_ENGINE_FIELDS: Final = frozenset(
    {"gemm_level", "elementwise_passes", "dispatch_s", "compiled_passes_ratio", "micro_batch_overhead_s"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeNumber:
    """One number that the fit moves: its record (from low to high where several), factor and prior.

    `sd` and `prior_sd` are of the factor's logarithm; `share` is what the data decide of it.
    """

    group: str
    name: str
    field: str
    low: float
    high: float
    factor: float
    sd: float
    prior_sd: float
    share: float

    @property
    def moved(self) -> float:
        """How far the factor is from the record, in prior standard deviations."""
        return abs(math.log(self.factor)) / self.prior_sd


def free_numbers() -> tuple[FreeNumber, ...]:
    """Every number that the last fit moved, by group."""
    prior = {each.name: each for each in free_parameters()}
    found = [_number(each, prior[each.name]) for each in fitted().factors if each.name in prior]
    return tuple(sorted(found, key=lambda each: GROUPS.index(each.group)))


def _number(given: Factor, free: Free) -> FreeNumber:
    values = list(_records(given))
    return FreeNumber(
        group=_group(given),
        name=given.name.split(".")[1],
        field=given.field,
        low=min(values),
        high=max(values),
        factor=given.factor,
        sd=given.sd,
        prior_sd=free.sd,
        share=given.share,
    )


def _group(given: Factor) -> str:
    if given.of == "accelerator":
        return CHIPS
    if given.of == "assumption":
        return SHARED
    return ENGINES if given.names and given.field in _ENGINE_FIELDS else FAMILIES


def _records(given: Factor) -> Iterator[float]:
    """The values before the fit of all entries that a number belongs to."""
    if given.of == "assumption":
        yield _before(assumption_settings()[given.field].value, given, ("",))
    if given.of == "engine":
        for name in given.names or engines():
            yield _before(engine_settings(name)["time"][given.field].value, given, (name,))
    if given.of == "accelerator":
        for name in accelerators():
            yield from _of_device(name, given)


def _of_device(name: str, given: Factor) -> Iterator[float]:
    known = accelerator_quantities(name)
    names = (name, accelerator(name).architecture)
    if given.field in known and given.touches(given.of, names, given.field):
        yield _before(known[given.field].value, given, names)


def _before(value: object, given: Factor, names: tuple[str, ...]) -> float:
    assert isinstance(value, float | int)
    return float(value) / (factor_of(given.of, names, given.field) or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """What the rows of the fit count together, and how many sources are capped."""

    rows: int
    configurations: int
    groups: int
    votes: float
    capped: tuple[str, ...]


def votes(readings: Sequence[Reading]) -> Votes:
    """The votes of trusted rows with a step time."""
    rows = [each for each in readings if each.is_trusted and each.step_s is not None]
    each, total = weights(rows), defaultdict[str, float](float)
    for reading, weight in zip(rows, each, strict=True):
        total[reading.group] += float(weight)
    return Votes(
        rows=len(rows),
        configurations=len({reading.configuration for reading in rows}),
        groups=len(total),
        votes=float(each.sum()),
        capped=tuple(sorted(name for name, sum_ in total.items() if sum_ > MOST_ROWS - 1e-6)),
    )
