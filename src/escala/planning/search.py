"""The best plans of a stated space, exactly: best-first, with bounds that drop nothing worth showing.

Cells (degrees, micro-batch, SP) have a lower bound on memory and on time, their ways (sharding, pipeline,
mesh order) have closer ones. Groups of cells are taken by rising bound; what is left out can neither enter
the ranking, nor be near the best, nor be the best of a family. What cannot pay off is not tried: other
recompute where none is needed, more recomputed layers than needed. Compile and fused loss never cost time or
memory in the model, so the search runs with both and tries the plainer variants of what is near the best.
"""

import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.model.columns import F64, I64
from escala.model.energy import footprint
from escala.model.estimate import Estimate, estimate, time_of
from escala.model.host import PLACES
from escala.model.memory import Verdict
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import REASONS, Reject, draws_too_much
from escala.planning.checks import refuse_unable, refuse_unplanned
from escala.planning.frontier import CHUNK_ROWS, Cells, Frontier, Ways
from escala.planning.offloads import refuse_unknown_offload, with_offload
from escala.planning.pool import Pool, first_of_each, layout_keys
from escala.planning.rows import Rows
from escala.planning.simplicity import FAMILIES, complexity
from escala.planning.space import Group, SpaceLimits, groups, size, variants
from escala.planning.variants import COLUMN_NAMES, Accepted, Fitting, finishes

TOO_BIG: Final = "does not fit"
TOO_HUNGRY: Final = REASONS[Reject.SITE_POWER]
TOO_SLOW: Final = "slower than those shown, by a bound"
TOLERANCE: Final = 0.05
"""Plans whose objectives are within this share are ties: orders inside it are noise. Of those near the best
the simplest is recommended, unless the user asks for another share."""
ROUNDING: Final = 1e-12
FIRST_ROWS: Final = 2048
"""Rows priced before the bound is looked at again; twice as many each time."""
RECOMPUTE: Final = ("recompute", "recompute_layers")


class Objective(StrEnum):
    """What the ranking minimises."""

    TIME = "time"
    COST = "cost"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of a search: counts, the ranking, the recommendation, and the best of every family.

    `considered` counts the plans of the space, `estimated` those whose seconds were computed, `feasible`
    those of them that fit, `rejected` plans by reason. `ranking` has the best plan of each of the
    best layouts, and the recommended one, best first; `recommended` is the row of the simplest within
    `tolerance` of the best. `families` maps a family
    to its best plan, or None when it has none that fits. `is_risky` says that nothing fits with a margin.
    """

    considered: int
    estimated: int
    feasible: int
    search_s: float
    rejected: dict[str, int]
    tolerance: float
    objective: Objective
    ranking: Estimate | None
    recommended: int | None
    complexity: I64
    families: dict[str, Plan | None]
    is_risky: bool


def search(
    problem: Problem,
    limits: SpaceLimits | None = None,
    *,
    objective: Objective = Objective.TIME,
    top: int = 10,
    tolerance: float = TOLERANCE,
    may_offload: bool = True,
) -> Found:
    """Rank the space of a problem: the plans that fit with a margin, or the least risky when nothing does.

    Offload is tried where nothing fits without it, or only plans that need more than the device has by the
    prediction: as little as is needed.
    """
    narrowed = limits or SpaceLimits()
    refuse_unplanned(problem, narrowed.precision)
    refuse_unable(problem, narrowed.plain)
    refuse_unknown_offload(problem, narrowed.plain)
    if objective is Objective.ENERGY and problem.accelerator.power_w is None:
        chip = problem.accelerator.name
        raise InvalidInput(f"the power of {chip} is not known; rank by time or cost instead")
    start, unlikely = time.perf_counter(), None
    for each in (narrowed, *(with_offload(problem, narrowed) if may_offload else ())):
        found, accepted = _safest(problem, each, objective, top, tolerance)
        if found.ranking is not None and accepted.device_share <= 1.0:
            break
        unlikely = unlikely or (found if found.ranking is not None else None)
    else:
        found = unlikely or found
    return replace(found, search_s=time.perf_counter() - start)


def _safest(
    problem: Problem, limits: SpaceLimits, objective: Objective, top: int, tolerance: float
) -> tuple[Found, Accepted]:
    """The ranking of the first level of risk that some plan is at, and that level."""
    every = groups(problem, limits)
    asked = size(problem, limits, every)
    cells = Cells.of(problem, limits, every) if every and not draws_too_much(problem) else None
    for accepted in levels(problem, limits.plain):
        found = _Search(problem, limits, objective, top, tolerance, accepted).run(cells, asked)
        if found.ranking is not None:
            break
    return found, accepted


def levels(problem: Problem, plan: Plan) -> tuple[Accepted, ...]:
    """What may be accepted, the safest first.

    With a margin; with buffers that may fill the host; with all of the device by the prediction; with more,
    inside the error of the prediction.
    """
    known, offloads = problem.assumptions, any(getattr(plan, place) for place in PLACES)
    host = Verdict.RISKY if offloads else Verdict.FITS
    fits = [Accepted(device_share=known.risky_share, host=each) for each in sorted({Verdict.FITS, host})]
    tight = [Accepted(device_share=share, host=host) for share in (1.0, known.full_share)]
    return (*fits, *tight)


class _Search:
    """One pass over the space with one idea of what fits."""

    def __init__(
        self,
        problem: Problem,
        limits: SpaceLimits,
        objective: Objective,
        top: int,
        tolerance: float,
        accepted: Accepted,
    ) -> None:
        self.problem, self.limits, self.objective = problem, limits, objective
        self.accepted, self.tolerance = accepted, tolerance
        self.frontier = Frontier(problem=problem, limits=limits, accepted=accepted)
        self.fitting = Fitting(problem=problem, limits=limits, accepted=accepted)
        self.pool = Pool(top=top, slack=1.0 + tolerance)
        self.rejected = {TOO_BIG: 0, TOO_SLOW: 0}
        self.estimated = self.feasible = 0
        # bounds are rounded otherwise than what they bound
        self.least = self._least_per_second() * (1.0 - ROUNDING)

    def run(self, cells: Cells | None, asked: int) -> Found:
        """Groups by rising bound, cells inside the bound, rows in chunks.

        Without cells the site has no power for the devices, or nothing was asked for.
        """
        waiting: list[Ways] = []
        self.rejected[TOO_HUNGRY] = asked if cells is None else 0
        for group, table, seconds, lost in self.frontier.ordered(cells) if cells is not None else ():
            kept = np.flatnonzero(self.pool.may_show_cells(table, seconds * self.least))
            self._count(group, TOO_BIG, lost)
            self._count(group, TOO_SLOW, len(table) - len(kept))
            if len(kept):
                waiting.append(Ways.of(group, table[kept], seconds[kept]))
            # a smaller first chunk sets the bound early
            enough = CHUNK_ROWS if self.estimated else CHUNK_ROWS // 2
            if sum(len(part.seconds) for part in waiting) >= enough:
                self._evaluate(self.frontier.rows(waiting))
                waiting = []
        if waiting:
            self._evaluate(self.frontier.rows(waiting))
        return self._found(asked)

    def _count(self, group: Group, reason: str, cells: int) -> None:
        """Note that so many cells of a group were left out, in plans."""
        per_cell = group.ways // max(len(group.experts) * group.micro_ways, 1) * len(group.orders)
        if cells:
            self.rejected[reason] += cells * per_cell * variants(self.problem, self.limits, group.pp)

    def _least_per_second(self) -> float:
        """Least value of the objective for each second: 1 for time, the idle power for energy."""
        if self.objective is not Objective.ENERGY:
            return 1.0
        site, chip = self.problem.cluster.site, self.problem.accelerator
        assert chip.power_w is not None  # refused by search
        idle_w = chip.power_w * self.problem.assumptions.power_idle_share
        return idle_w * self.problem.cluster.devices * site.node_power_ratio * site.pue

    def _evaluate(self, rows: Rows) -> None:
        """Drop by ever closer bounds what cannot be shown or cannot fit, rank the others."""
        for bound in (self.frontier.bubble_s, self.frontier.fitting_s, self.frontier.first_rank_s):
            rows = self._sift(rows, bound(rows))
        if int(rows.ways.max(initial=1)) > 1:
            rows = rows.placed()
            rows = self._sift(rows, self.frontier.first_rank_s(rows))
        rows, some = rows.rising(), FIRST_ROWS
        while len(rows):
            self._rank(rows.take(slice(0, some)).plans)
            rows = rows.take(slice(some, None))
            rows, some = self._sift(rows, rows.seconds), min(2 * some, CHUNK_ROWS)

    def _sift(self, rows: Rows, seconds: F64) -> Rows:
        """Rows that may be shown when they take at least these seconds."""
        fits = np.isfinite(seconds)
        useful = fits & self.pool.may_show(rows.plans, seconds * self.least)
        self._reject(TOO_BIG, rows.plans.pp[~fits], rows.ways[~fits])
        self._reject(TOO_SLOW, rows.plans.pp[fits & ~useful], rows.ways[fits & ~useful])
        return replace(rows, seconds=seconds).take(useful)

    def _reject(self, reason: str, depths: I64, ways: I64 | int, of_way: int = 1) -> None:
        """Note that plans of some pp were left out: each row is so many ways, of_way rows are one of them."""
        for pp, count in enumerate(np.bincount(depths, weights=np.broadcast_to(ways, depths.shape))):
            if count:
                self.rejected[reason] += int(count) * (variants(self.problem, self.limits, pp) // of_way)

    def _rank(self, plans: Plans) -> None:
        """Drop what is too slow even without recompute, find what fits, price it, keep what may be shown.

        Compile and fused loss save time for certain, energy not: by energy every choice of them is priced.
        """
        ways = len(plans)
        if self.objective is Objective.ENERGY:
            plans = finishes(self.problem, self.limits, plans)
        of_way = len(plans) // max(ways, 1)
        useful = self.pool.may_show(plans, self._values(plans))
        self._reject(TOO_SLOW, plans.pp[~useful], 1, of_way)
        self.estimated += len(plans)
        those, lost = self.fitting.of(plans.take(useful))
        self._reject(TOO_BIG, lost.pp, 1, of_way)
        if those is not None:
            self.feasible += len(those)
            self.pool.add(those, self._values(those))

    def _values(self, plans: Plans) -> F64:
        seconds = time_of(self.problem, plans)
        if self.objective is Objective.ENERGY:
            energy_j = footprint(self.problem, plans, seconds).energy_j
            assert energy_j is not None  # a device without a known power is refused
            return energy_j
        return seconds.step_s

    def _found(self, considered: int) -> Found:
        result, recommended = self._ranking()
        return Found(
            considered=considered,
            estimated=self.estimated,
            feasible=self.feasible,
            search_s=0.0,
            rejected={reason: count for reason, count in self.rejected.items() if count},
            tolerance=self.tolerance,
            objective=self.objective,
            ranking=result,
            recommended=recommended,
            complexity=complexity(result.plans) if result is not None else np.empty(0, np.int64),
            families={f.name: self.pool.families.get(f.name, (0.0, None))[1] for f in FAMILIES},
            is_risky=self.accepted != levels(self.problem, self.limits.plain)[0],
        )

    def _ranking(self) -> tuple[Estimate | None, int | None]:
        """The best plan of each layout and the simplest near the best, among all variants kept."""
        if not self.pool.layouts:
            return None, None
        plans, values = self._all_variants()
        points = complexity(plans)
        near = np.flatnonzero(values <= values.min() * (1 + self.tolerance))
        # of equally simple plans the one that shards less
        choice = int(near[np.lexsort((values[near], plans.zero[near], points[near]))[0]])
        order = np.lexsort((points, values.round(12)))
        rows = order[first_of_each(layout_keys(plans)[order])][: self.pool.top]
        rows = rows if choice in rows else np.append(rows, choice)
        rows = rows[np.argsort(values[rows], kind="stable")]
        return estimate(self.problem, plans.take(rows)), int(np.flatnonzero(rows == choice)[0])

    def _all_variants(self) -> tuple[Plans, F64]:
        """Kept ways with every finish and the recompute that each then needs."""
        kept, _ = self.pool.near(self.pool.bound())
        plain = {name: getattr(kept, name) for name in COLUMN_NAMES if name not in RECOMPUTE}
        ways = kept.take(first_of_each(np.column_stack(list(plain.values()))))
        blank = {name: np.zeros(len(ways), np.int64) for name in RECOMPUTE}
        bare = Plans(**{name: getattr(ways, name) for name in plain}, **blank, splits=ways.splits)
        fitting, _ = self.fitting.of(finishes(self.problem, self.limits, bare))
        assert fitting is not None
        return fitting, self._values(fitting)
