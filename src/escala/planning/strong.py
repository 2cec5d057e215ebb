"""Where more devices stop paying, and why: the same batch on ever more devices, read as theory reads it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.model.cluster import Link
from escala.model.columns import F64
from escala.model.estimate import estimate
from escala.model.memory import Verdict
from escala.model.plan import Plan, Plans, Schedule
from escala.model.problem import Problem
from escala.model.scaling import amdahl_speedup, gustafson_speedup, serial_share
from escala.planning.resizing import Case, case_of
from escala.planning.scaling import WORTH, ScalePoint, on, point
from escala.units import HOUR_S

RISES: Final = 1.1
"""A serial share that is this much larger at the last point than at the second rises (a convention)."""
HELPS: Final = 0.01
"""Share by which a wider link has to keep more to be named."""
RATIOS: Final = (2.0, 4.0, 8.0, 16.0)
"""Times the bandwidth of a link that are tried."""
LARGEST: Final = 1 << 20
"""Devices up to which a layout is stretched."""


class Trend:
    """What the serial share says: it stays (serial work), rises (overhead), falls."""

    FLAT = "flat"
    RISING = "rising"
    FALLING = "falling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One point of a curve in the terms of the classics; the first has no serial share.

    `amdahl` is the speed-up that this point's serial share lets the same work have at most on any number of
    devices (None: no end), `gustafson` the speed-up of work that grows with the devices. `j_per_saved_s` and
    `usd_per_saved_hour` are what each saved second or hour costs more than at the point before.
    """

    devices: int
    speedup: float
    serial_share: float | None
    amdahl: float | None
    gustafson: float | None
    j_per_saved_s: float | None
    usd_per_saved_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The first number of devices on which less than the bound is kept, and what bends the curve there.

    `term` grew most, in device-seconds, since the first point, to `term_share` of the step. `link` is the one
    whose bandwidth helps most, `link_ratio` times it keeps `link_efficiency`: the least power of two up to 16
    that keeps the bound, else 2. No link, 1 and None where none helps.
    """

    devices: int
    efficiency: float
    term: str
    term_share: float
    link: str
    link_ratio: float
    link_efficiency: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A curve in numbers of theory; `least_energy` and `least_cost` are devices, None where unknown.

    `ends` says why the last point is the last one, empty where the asker chose it.
    """

    keep: float
    points: tuple[ScalePoint, ...]
    laws: tuple[Law, ...]
    trend: str | None
    stop: Stop | None
    least_energy: int | None
    least_cost: int | None
    ends: str = ""


def stretched(problem: Problem, plan: Plan, *, keep: float = WORTH, most: int = LARGEST) -> Reading:
    """The layout on 1, 2, 4, ... times its devices, the batch kept, until too little is kept.

    At each size the degree whose doubling gives the shortest step is doubled: dp, tp, pp or cp. Two doublings
    at least, as far as batch, network and links reach.
    """
    here = Case(problem=on(problem, plan.devices), plan=plan)
    points, ends = _added(here, []), ""
    while points and here.devices * 2 <= most and (points[-1].efficiency >= keep or len(points) < 3):
        try:
            wider = _doubled(here)
        except InvalidInput as error:
            ends = str(error).partition(";")[0]
            break
        if wider is None:
            ends = f"no degree can be doubled to {here.devices * 2:,} devices with this batch"
            break
        here = wider
        points = _added(here, points)
    return reading(points, lambda each: Case(problem=on(problem, each.devices), plan=each.plan), keep, ends)


def _added(case: Case, before: list[ScalePoint]) -> list[ScalePoint]:
    """The points with that of a case; none more where it cannot be run."""
    told = estimate(case.problem, Plans.of(case.plan))
    if int(told.reject[0]):
        return before
    is_risky = bool(told.memory.verdict[0] == Verdict.RISKY)
    return [*before, point(told, case.devices, before, is_risky=is_risky)]


def _doubled(case: Case) -> Case | None:
    """Twice the devices under the degree that gives the shortest step; None where none can be doubled."""
    problem = on(case.problem, case.devices * 2)
    wider = [_widened(problem, case.plan, axis) for axis in ("tp", "pp", "cp")]
    with suppress(InvalidInput):  # the batch may have no samples for more replicas
        wider.insert(0, case_of(case.problem, case.plan, case.devices * 2, is_weak=False).plan)
    told = estimate(problem, Plans.of(wider))
    step_s = np.where(told.reject == 0, told.step_s, np.inf)
    best = int(np.argmin(step_s))
    return Case(problem=problem, plan=wider[best]) if np.isfinite(step_s[best]) else None


def _widened(problem: Problem, plan: Plan, axis: str) -> Plan:
    """Twice one degree inside a replica; what was sharded over all stays so."""
    wider = replace(plan, **{axis: 2 * getattr(plan, axis)})
    if axis == "pp" and plan.pp == 1:
        kept = plan.reshard and "reshard-with-pp" not in problem.engine.lacks
        wider = replace(wider, schedule=Schedule.ONE_F_ONE_B, reshard=kept)
    whole = plan.zero > 0 and plan.shard == plan.dp * plan.cp
    return replace(wider, shard=wider.dp * wider.cp) if whole else wider


def reading(
    points: Sequence[ScalePoint], case: Callable[[ScalePoint], Case], keep: float = WORTH, ends: str = ""
) -> Reading:
    """The numbers of a curve; `case` gives the question behind a point."""
    return Reading(
        keep=keep,
        points=tuple(points),
        laws=tuple(laws(points)),
        trend=_trend(points),
        stop=_stop(points, case, keep),
        least_energy=_least(points, [each.energy_j for each in points]),
        least_cost=_least(points, [each.cost_usd for each in points]),
        ends=ends,
    )


def laws(points: Sequence[ScalePoint]) -> list[Law]:
    """Amdahl, Gustafson and Karp-Flatt at every point, and the price of each saved second."""
    if not points:
        return []
    ratios, gains = _ratios(points)
    shares = serial_share(gains, ratios)
    found = [_law(points[0], None, 1.0, 1.0, float("nan"))]
    for row, (one, two) in enumerate(pairwise(points), start=1):
        found.append(_law(two, one, float(gains[row]), float(ratios[row]), float(shares[row])))
    return found


def _ratios(points: Sequence[ScalePoint]) -> tuple[F64, F64]:
    devices, step_s = (np.array([getattr(each, name) for each in points]) for name in ("devices", "step_s"))
    return devices / devices[0], step_s[0] / step_s


def _law(here: ScalePoint, before: ScalePoint | None, gain: float, ratio: float, share: float) -> Law:
    is_first = before is None
    known = np.array([ratio])
    return Law(
        devices=here.devices,
        speedup=gain,
        serial_share=None if is_first else share,
        amdahl=None if is_first or share <= 0 else float(amdahl_speedup(share, np.array([np.inf]))[0]),
        gustafson=None if is_first else float(gustafson_speedup(share, known)[0]),
        j_per_saved_s=_per_saved_s(here, before, "energy_j"),
        usd_per_saved_hour=_hourly(_per_saved_s(here, before, "cost_usd")),
    )


def _hourly(per_second: float | None) -> float | None:
    return None if per_second is None else per_second * HOUR_S


def _per_saved_s(here: ScalePoint, before: ScalePoint | None, name: str) -> float | None:
    """What a step takes more / seconds that it is shorter; None where it is no shorter or unknown."""
    if before is None or here.step_s >= before.step_s:
        return None
    one, two = getattr(before, name), getattr(here, name)
    return None if one is None or two is None else float((two - one) / (before.step_s - here.step_s))


def _trend(points: Sequence[ScalePoint]) -> str | None:
    """Karp and Flatt's reading; None for fewer than three points."""
    if len(points) < 3:
        return None
    ratios, gains = _ratios(points)
    shares = serial_share(gains, ratios)[1:]
    if shares[-1] > shares[0] * RISES and shares[-1] > 0:
        return Trend.RISING
    return Trend.FALLING if shares[-1] * RISES < shares[0] else Trend.FLAT


def _stop(points: Sequence[ScalePoint], case: Callable[[ScalePoint], Case], keep: float) -> Stop | None:
    found = next((each for each in points if each.efficiency < keep), None)
    if found is None:
        return None
    term, grown_s = _bending(points[0], found)
    link, ratio, kept = _helped(case(points[0]), case(found), keep)
    helps = kept > found.efficiency * (1.0 + HELPS)
    return Stop(
        devices=found.devices,
        efficiency=found.efficiency,
        term=term,
        term_share=grown_s / found.step_s,
        link=link if helps else "",
        link_ratio=ratio if helps else 1.0,
        link_efficiency=kept if helps else None,
    )


def _bending(first: ScalePoint, here: ScalePoint) -> tuple[str, float]:
    """The term that takes most device-seconds more than at the first point, and its seconds here."""
    grown = {name: here.devices * s - first.devices * first.terms_s[name] for name, s in here.terms_s.items()}
    term = max(grown, key=lambda name: grown[name])
    return term, here.terms_s[term]


def _helped(first: Case, here: Case, keep: float) -> tuple[str, float, float]:
    """The crossed link whose bandwidth helps most, how many times it, what is kept; no name without one."""
    links = here.problem.cluster.crossed_links
    if not links:
        return "", 1.0, 0.0
    best = max(range(len(links)), key=lambda index: _kept_with(first, here, index, 2.0))
    tried = [(ratio, _kept_with(first, here, best, ratio)) for ratio in RATIOS]
    ratio, kept = next((each for each in tried if each[1] >= keep), tried[0])
    return links[best].name, ratio, kept


def _kept_with(first: Case, here: Case, index: int, ratio: float) -> float:
    """What is kept with so many times the bandwidth of one link, at both points."""
    link = here.problem.cluster.crossed_links[index]
    wide = replace(link, bytes_per_s=ratio * link.bytes_per_s)
    return _kept(_with(first, wide), _with(here, wide))


def _with(case: Case, link: Link) -> Case:
    cluster = case.problem.cluster
    links = tuple(link if old.name == link.name else old for old in cluster.links)
    return replace(case, problem=replace(case.problem, cluster=replace(cluster, links=links)))


def _kept(first: Case, here: Case) -> float:
    one, two = (float(estimate(each.problem, Plans.of(each.plan)).step_s[0]) for each in (first, here))
    return one * first.devices / (two * here.devices)


def _least(points: Sequence[ScalePoint], values: Sequence[float | None]) -> int | None:
    known = [(value, each.devices) for each, value in zip(points, values, strict=True) if value is not None]
    return min(known)[1] if known else None
