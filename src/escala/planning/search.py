"""The best plans of a stated space, exactly: best-first, with bounds that drop nothing worth showing.

Cells (degrees, micro-batch, SP, mesh order) have a lower bound on time, layouts a lower bound on memory.
Cells are taken by rising bound; the search stops when no remaining cell can enter the ranking, the set near
the best, or the best of a family. What cannot pay off is not tried: plain recompute is better when nothing
needs recomputing, the fewest recomputed layers that fit are the fastest, compile and fused loss never cost
time or memory in the model (their plainer twins are tried for the plans that are shown).
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from escala.model.columns import F64, I64
from escala.model.energy import footprint
from escala.model.estimate import (
    Dealt,
    Estimate,
    deal,
    estimate,
    least_bytes,
    least_s,
    least_state_bytes,
    memory_of,
    time_of,
)
from escala.model.memory import Verdict
from escala.model.plan import Plan, Plans, Recompute, concatenate
from escala.model.problem import Problem
from escala.planning.cells import CELL, cells, expand, fill
from escala.planning.pool import LAYOUT, Pool, first_of_each
from escala.planning.simplicity import FAMILIES, complexity, family_masks
from escala.planning.space import Group, SpaceLimits, finish_choices, groups, size

CHUNK_ROWS: Final = 16384


class Objective(StrEnum):
    """What the ranking minimises."""

    TIME = "time"
    COST = "cost"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of a search: counts, the ranking, the recommendation, and the best of every family.

    `ranking` has the best plan of each layout, best first; `recommended` the simplest within `tolerance` of
    the best. `families` maps a family to its best plan, or None when it has none that fits. `is_risky` says
    that nothing fits with a margin.
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
    tolerance: float = 0.05,
) -> Found:
    """Rank the space of a problem; plans that fit with a margin first, risky ones only when nothing fits."""
    narrowed = limits or SpaceLimits()
    for accepted in (Verdict.FITS, Verdict.RISKY):
        found = _Search(problem, narrowed, objective, top, tolerance, accepted).run()
        if found.ranking is not None:
            break
    return found


class _Search:
    """One pass over the space with one idea of what fits."""

    def __init__(
        self,
        problem: Problem,
        limits: SpaceLimits,
        objective: Objective,
        top: int,
        tolerance: float,
        accepted: Verdict,
    ) -> None:
        self.problem, self.limits, self.objective = problem, limits, objective
        self.accepted, self.tolerance = accepted, tolerance
        self.pool = Pool(top=top, slack=1.0 + tolerance)
        self.rejected = {"does not fit": 0, "slower than those shown, by a bound": 0}
        self.estimated = self.feasible = 0

    def run(self) -> Found:
        """Groups by rising bound, cells inside the bound, rows in chunks."""
        start = time.perf_counter()
        every = groups(self.problem, self.limits)
        waiting: list[dict[str, np.ndarray]] = []
        rows = 0
        for bound, group, chosen in self._ordered(every):
            kept = chosen[self._matters(chosen, bound)]
            self.rejected["slower than those shown, by a bound"] += self._skipped(group, chosen, kept)
            if len(kept):
                waiting.append(expand(group, kept))
                rows += len(waiting[-1]["dp"])
            if rows >= CHUNK_ROWS:
                self._evaluate(waiting)
                waiting, rows = [], 0
        if waiting:
            self._evaluate(waiting)
        return self._found(size(self.problem, self.limits, every), time.perf_counter() - start)

    def _ordered(self, every: list[Group]) -> Iterable[tuple[F64, Group, np.ndarray]]:
        """Groups with the lower bounds of their cells that may fit, the most promising group first."""
        if not every:
            return []
        tables = [cells(group) for group in every]
        owner = np.repeat(np.arange(len(every)), [len(table) for table in tables])
        table, states = np.concatenate(tables), self._least_states(every, tables)
        possible = self._affordable(table, states)
        counts = np.bincount(owner[~possible], minlength=len(every))
        lost = (g.ways * int(n) // len(t) for g, n, t in zip(every, counts, tables, strict=True))
        self.rejected["does not fit"] += sum(lost)
        table, cuts = table[possible], np.searchsorted(owner[possible], np.arange(1, len(every)))
        mine, bounds = np.split(table, cuts), np.split(self._bounds(table), cuts)
        order = np.argsort([bound.min(initial=np.inf) for bound in bounds], kind="stable")
        return [(bounds[i], every[i], mine[i]) for i in order]

    def _least_states(self, every: list[Group], tables: list[np.ndarray]) -> F64:
        """For every cell, the states of its average rank under the leanest sharding of its group."""
        rows = [
            (g.dp, g.tp, g.pp, g.cp, ep, etp, *mode)
            for g in every
            for ep, etp in g.experts
            for mode in g.modes
        ]
        names = ("dp", "tp", "pp", "cp", "ep", "etp", "zero", "reshard", "shard")
        states = least_state_bytes(self.problem, self._plans(dict(zip(names, np.array(rows).T, strict=True))))
        experts = [len(g.modes) for g in every for _ in g.experts]
        least = np.minimum.reduceat(states, np.concatenate(([0], np.cumsum(experts)[:-1])))
        repeats = [len(t) // len(g.experts) for g, t in zip(every, tables, strict=True) for _ in g.experts]
        return np.repeat(least, repeats)

    def _affordable(self, table: np.ndarray, states: F64) -> np.ndarray:
        parts = [
            self._may_fit(
                self._plans(self._columns(table[begin : begin + CHUNK_ROWS])),
                states[begin : begin + CHUNK_ROWS],
            )
            for begin in range(0, len(table), CHUNK_ROWS)
        ]
        return np.concatenate(parts)

    def _may_fit(self, plans: Plans, states: F64) -> np.ndarray:
        capacity = self.problem.accelerator.memory_bytes * self.problem.assumptions.full_share
        return np.asarray(least_bytes(self.problem, plans, states) <= capacity)

    def _columns(self, table: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(CELL, table.T, strict=True))

    def _plans(self, columns: dict[str, np.ndarray]) -> Plans:
        """Plans from columns, compiled and with fused loss where engine and user allow."""
        rows = len(columns["dp"])
        return fill({**columns, **self._finished(rows, *self._finish())}, rows, self.limits.precision)

    def _bounds(self, table: np.ndarray) -> F64:
        starts = range(0, len(table), CHUNK_ROWS)
        parts = [self._plans(self._columns(table[begin : begin + CHUNK_ROWS])) for begin in starts]
        bounds = [least_s(self.problem, part) for part in parts] or [np.empty(0)]
        return np.concatenate(bounds) * self._least_per_second()

    def _least_per_second(self) -> float:
        """Least value of the objective for each second: 1 for time, the idle power for energy."""
        if self.objective is not Objective.ENERGY:
            return 1.0
        site, chip = self.problem.cluster.site, self.problem.accelerator
        idle_w = (chip.power_w or 0.0) * self.problem.assumptions.power_idle_share
        return idle_w * self.problem.cluster.devices * site.node_power_ratio * site.pue

    def _matters(self, chosen: np.ndarray, bound: F64) -> np.ndarray:
        """Cells that may still enter the ranking or become the best of a family."""
        matters = bound <= self.pool.bound()
        column = {name: chosen[:, CELL.index(name)] for name in ("tp", "pp", "cp", "ep")}
        pure = np.ones(len(chosen), np.bool_)
        for name, values in column.items():
            best = self.pool.families.get(name, (np.inf, None))[0]
            matters |= (values > 1) & (bound <= best)
            pure &= values == 1
        return matters | pure

    def _skipped(self, group: Group, chosen: np.ndarray, kept: np.ndarray) -> int:
        return group.ways * (len(chosen) - len(kept)) // max(len(chosen), 1)

    def _finish(self) -> tuple[int, int]:
        modes, losses = finish_choices(self.problem, self.limits)
        return max(modes, default=0), max(losses, default=0)

    def _finished(self, rows: int, compiled: int, fused: int) -> dict[str, np.ndarray]:
        return {"compile": np.full(rows, compiled, np.int64), "fused_loss": np.full(rows, fused, np.int64)}

    def _evaluate(self, waiting: list[dict[str, np.ndarray]]) -> None:
        plans = self._plans({name: np.concatenate([part[name] for part in waiting]) for name in waiting[0]})
        possible = self._may_fit(plans, least_state_bytes(self.problem, plans))
        self.rejected["does not fit"] += int((~possible).sum())
        plans = plans.take(possible)
        for begin in range(0, len(plans), CHUNK_ROWS):
            self._rank(plans.take(slice(begin, begin + CHUNK_ROWS)))

    def _rank(self, plans: Plans) -> None:
        """Drop what is too slow even without recompute, find what fits, price it, keep the best."""
        plain = self._values(plans)
        useful = self._can_matter(plans, plain)
        self.rejected["slower than those shown, by a bound"] += int((~useful).sum())
        fitting = [part for part in self._fitting(plans.take(useful)) if len(part)]
        self.estimated += len(plans)
        if fitting:
            those = concatenate(fitting)
            self.feasible += len(those)
            self.pool.add(those, self._values(those))

    def _can_matter(self, plans: Plans, values: F64) -> np.ndarray:
        matters = values <= self.pool.bound()
        for name, mask in family_masks(plans).items():
            matters |= mask & (values <= self.pool.families.get(name, (np.inf, None))[0])
        return matters

    def _values(self, plans: Plans) -> F64:
        time = time_of(self.problem, plans)
        if self.objective is Objective.ENERGY:
            energy = footprint(self.problem, plans, time).energy_j
            return time.step_s if energy is None else energy
        return time.step_s

    def _fitting(self, plans: Plans) -> list[Plans]:
        """Plans that fit: as they are, selectively recomputed, or with the fewest recomputed layers."""
        allowed = {mode for mode in Recompute if self.limits.keep("recompute", (int(mode),))}
        lacks = self.problem.engine.lacks
        found: list[Plans] = []
        rest = plans
        if Recompute.NONE in allowed and len(plans):
            fits = self._fits(plans, deal(self.problem, plans))
            found, rest = [plans.take(fits)], plans.take(~fits)
        if not len(rest):
            return found
        dealt = deal(self.problem, rest)
        if Recompute.SELECTIVE in allowed and "selective" not in lacks:
            selective = recomputed(rest, Recompute.SELECTIVE)
            found.append(selective.take(self._fits(selective, dealt)))
        full = recomputed(rest, Recompute.FULL)
        fits = self._fits(full, dealt)
        self.rejected["does not fit"] += len(rest) - int(fits.sum())
        if Recompute.FULL in allowed:
            found.append(full.take(fits))
        if Recompute.FIRST_LAYERS in allowed and "first-layers" not in lacks:
            found.append(self._fewest_layers(rest.take(fits)))
        return found

    def _fits(self, plans: Plans, dealt: Dealt) -> np.ndarray:
        return memory_of(self.problem, plans, dealt).verdict <= self.accepted

    def _fewest_layers(self, plans: Plans) -> Plans:
        """Plans with the fewest recomputed layers that fit, by bisection: memory falls with each layer."""
        if not len(plans):
            return plans
        dealt = deal(self.problem, plans)
        layers = self.problem.workload.network.layers
        high = -(-layers // plans.pp)
        low = np.zeros(len(plans), np.int64)
        while int((high - low).max()) > 1:
            middle = np.maximum((low + high) // 2, 1)
            fits = self._fits(recomputed(plans, Recompute.FIRST_LAYERS, middle), dealt)
            high, low = np.where(fits, middle, high), np.where(fits, low, middle)
        some = recomputed(plans, Recompute.FIRST_LAYERS, high)
        return some.take(high < -(-layers // plans.pp))

    def _found(self, considered: int, search_s: float) -> Found:
        result, recommended, points = self._ranking()
        return Found(
            considered=considered,
            estimated=self.estimated,
            feasible=self.feasible,
            search_s=search_s,
            rejected={reason: count for reason, count in self.rejected.items() if count},
            tolerance=self.tolerance,
            objective=self.objective,
            ranking=result,
            recommended=recommended,
            complexity=points,
            families={f.name: self.pool.families.get(f.name, (0.0, None))[1] for f in FAMILIES},
            is_risky=self.accepted is Verdict.RISKY,
        )

    def _ranking(self) -> tuple[Estimate | None, int | None, I64]:
        """The best plan of each layout, the simplest near the best, both with their plainest equal twins."""
        if not self.pool.styles:
            return None, None, np.empty(0, np.int64)
        known = Plans.of([plan for _, plan in self.pool.styles.values()])
        twins = self._twins(known)
        result = estimate(self.problem, twins)
        values, points = self._values(twins), complexity(twins)
        usable = np.flatnonzero(result.memory.verdict <= self.accepted)
        near = usable[values[usable] <= values[usable].min() * (1 + self.tolerance)]
        choice = int(near[np.lexsort((values[near], points[near]))[0]])
        order = usable[np.lexsort((points[usable], values[usable]))]
        layouts = np.column_stack([getattr(twins, name) for name in LAYOUT])
        rows = order[first_of_each(layouts[order])][: self.pool.top]
        rows = rows if choice in rows else np.append(rows[: self.pool.top - 1], choice)
        rows = rows[np.argsort(values[rows], kind="stable")]
        return estimate(self.problem, twins.take(rows)), int(np.flatnonzero(rows == choice)[0]), points[rows]

    def _twins(self, plans: Plans) -> Plans:
        modes, losses = finish_choices(self.problem, self.limits)
        copies = []
        for compiled in modes:
            for fused in losses:
                values = {name: getattr(plans, name) for name in _COLUMN_NAMES}
                values.update(self._finished(len(plans), compiled, fused))
                copies.append(Plans(**values, splits=plans.splits))
        return concatenate(copies)


_COLUMN_NAMES: Final = tuple(name for name in Plans.__slots__ if name != "splits")


def recomputed(plans: Plans, mode: Recompute, layers: I64 | None = None) -> Plans:
    """The same plans with another recompute mode."""
    values = {name: getattr(plans, name) for name in _COLUMN_NAMES}
    values["recompute"] = np.full(len(plans), int(mode), np.int64)
    values["recompute_layers"] = np.zeros(len(plans), np.int64) if layers is None else layers.copy()
    return Plans(**values, splits=plans.splits)
