"""How many devices: the fewest that fit, the strong-scaling curve, where more devices stop paying."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Final

from escala.model.estimate import Estimate
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.planning.search import Objective, search
from escala.planning.space import SpaceLimits
from escala.planning.why import resized

WORTH: Final = 0.8
"""A doubling of devices pays while it keeps this share of the ideal speed-up (a convention)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """The best plan on some devices; efficiency is against the first point of the curve.

    `interval_ratio` is the factor of the 80 % interval of its step time, `terms_s` what the step consists of.
    """

    devices: int
    plan: Plan
    step_s: float
    interval_ratio: float
    mfu: float
    efficiency: float
    energy_j: float | None
    cost_usd: float | None
    is_risky: bool = False
    terms_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Strong scaling: points, the fewest devices that fit, and the last count whose doubling paid."""

    points: tuple[ScalePoint, ...]
    fewest: int | None
    worth: int | None


def counts(problem: Problem, least: int, most: int) -> Iterator[int]:
    """Device counts to try: powers of two inside a node, then doublings of the node."""
    node = problem.cluster.devices_per_node
    count = 1
    while count <= most:
        if count >= least:
            yield count
        count = count * 2 if count * 2 <= node or count >= node else node


def on(problem: Problem, devices: int) -> Problem:
    """The same question on another number of devices."""
    return replace(problem, cluster=resized(problem.cluster, devices))


def curve(
    problem: Problem,
    limits: SpaceLimits | None = None,
    *,
    least: int = 1,
    most: int | None = None,
    objective: Objective = Objective.TIME,
) -> Curve:
    """Best plan at every device count; counts on which nothing fits are left out."""
    limit = most or problem.cluster.devices
    points: list[ScalePoint] = []
    for devices in counts(problem, least, limit):
        found = search(on(problem, devices), limits, objective=objective, top=1, may_offload=False)
        if found.ranking is not None:
            points.append(point(found.ranking, devices, points, is_risky=found.is_risky))
    return Curve(points=tuple(points), fewest=points[0].devices if points else None, worth=_worth(points))


def point(
    ranking: Estimate, devices: int, before: Sequence[ScalePoint], *, is_risky: bool = False
) -> ScalePoint:
    """The first plan of an estimate as the next point behind others."""
    step_s = float(ranking.step_s[0])
    ideal_s = before[0].step_s * before[0].devices / devices if before else step_s
    footprint = ranking.footprint
    return ScalePoint(
        devices=devices,
        plan=ranking.plans[0],
        step_s=step_s,
        interval_ratio=float(ranking.interval_ratio[0]),
        mfu=float(ranking.mfu[0]),
        efficiency=ideal_s / step_s,
        is_risky=is_risky,
        terms_s={each.name: float(getattr(ranking.time, each.name)[0]) for each in fields(ranking.time)},
        energy_j=None if footprint.energy_j is None else float(footprint.energy_j[0]),
        cost_usd=None if footprint.cost_usd is None else float(footprint.cost_usd[0]),
    )


def _worth(points: list[ScalePoint]) -> int | None:
    """The last count before a doubling keeps less than `WORTH` of its ideal speed-up."""
    worth = points[0].devices if points else None
    for one, two in pairwise(points):
        gained = (one.step_s / two.step_s) / (two.devices / one.devices)
        if gained < WORTH:
            break
        worth = two.devices
    return worth


def pareto(points: tuple[ScalePoint, ...]) -> tuple[ScalePoint, ...]:
    """Points that no other beats on time, energy and money at once; what is unknown does not count."""
    return tuple(p for p in points if not any(_beats(other, p) for other in points))


def _beats(a: ScalePoint, b: ScalePoint) -> bool:
    pairs = [(a.step_s, b.step_s), (a.energy_j, b.energy_j), (a.cost_usd, b.cost_usd)]
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    return all(x <= y for x, y in known) and any(x < y for x, y in known)
