"""The cells of a space that may fit, with lower bounds on what they cost, the most promising group first."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from escala.model.bounds import (
    LeastStates,
    best_wires,
    least_bubble_s,
    least_bytes,
    least_host_verdict,
    least_s,
    least_states,
)
from escala.model.columns import F64, I64, Bool
from escala.model.estimate import placed_wires
from escala.model.firstrank import first_rank_s
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.traffic import Wires
from escala.planning.cells import CELL, cells, expand, fill
from escala.planning.rows import Rows
from escala.planning.space import Group, SpaceLimits, orders
from escala.planning.variants import Accepted, finished

CHUNK_ROWS: Final = 16384
STATE_FIELDS: Final = ("dp", "tp", "pp", "cp", "ep", "etp", "zero", "reshard", "shard")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ways:
    """Columns of plans of one group, with the least seconds of their cells."""

    group: Group
    columns: dict[str, I64]
    seconds: F64

    @classmethod
    def of(cls, group: Group, table: I64, seconds: F64) -> Self:
        """All ways of some cells of a group."""
        columns, owner = expand(group, table)
        return cls(group=group, columns=columns, seconds=seconds[owner])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """All cells of some groups, and what each needs at least, whatever is accepted.

    A cell stands for all mesh orders of its group: the first is in its row.
    """

    groups: list[Group]
    owner: I64
    table: I64
    states: LeastStates
    device_bytes: F64
    host_verdict: I64

    @classmethod
    def of(cls, problem: Problem, limits: SpaceLimits, groups: list[Group]) -> Self:
        """The cells of at least one group."""
        tables = [cells(replace(group, orders=group.orders[:1])) for group in groups]
        table, states = np.concatenate(tables), _states_of(problem, limits, groups, tables)
        needs = [
            (
                least_bytes(problem, plans, states.take(rows)),
                least_host_verdict(problem, plans, states.take(rows)),
            )
            for rows, plans in _chunks(problem, limits, table)
        ]
        device_bytes, host_verdict = (np.concatenate(column) for column in zip(*needs, strict=True))
        return cls(
            groups=groups,
            owner=np.repeat(np.arange(len(groups)), [len(each) for each in tables]),
            table=table,
            states=states,
            device_bytes=device_bytes,
            host_verdict=host_verdict,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Lower bounds for a problem: bytes that a cell needs at least, seconds that it takes at least."""

    problem: Problem
    limits: SpaceLimits
    accepted: Accepted

    def ordered(self, every: Cells) -> Iterator[tuple[Group, I64, F64, int]]:
        """Each group, its cells that may fit, their least seconds, and how many of its cells cannot.

        The seconds are below those of all mesh orders.
        """
        groups, owner = every.groups, every.owner
        possible = self._accepts(every.device_bytes, every.host_verdict)
        lost = np.bincount(owner[~possible], minlength=len(groups))
        table, cuts = every.table[possible], np.searchsorted(owner[possible], np.arange(1, len(groups)))
        least_seconds = self._least_s(table, every.states.take(possible))
        mine, seconds = np.split(table, cuts), np.split(least_seconds, cuts)
        order = np.argsort([least.min(initial=np.inf) for least in seconds], kind="stable")
        for i in order:
            yield groups[i], mine[i], seconds[i], int(lost[i])

    def rows(self, parts: list[Ways]) -> Rows:
        """Ways of some groups as plans."""
        names = parts[0].columns
        return Rows(
            plans=self.plans(
                {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
            ),
            seconds=np.concatenate([part.seconds for part in parts]),
            group=np.repeat(np.arange(len(parts)), [len(part.seconds) for part in parts]),
            orders=tuple(part.group.orders for part in parts),
        )

    def bubble_s(self, rows: Rows) -> F64:
        """Least seconds of rows with the idle time that their schedule adds at least."""
        return rows.seconds + least_bubble_s(self.problem, rows.plans, rows.seconds)

    def fitting_s(self, rows: Rows) -> F64:
        """Least seconds of rows, infinite where the mean rank cannot fit."""
        possible = self.may_fit(rows.plans, least_states(self.problem, rows.plans))
        return np.where(possible, rows.seconds, np.inf)

    def first_rank_s(self, rows: Rows) -> F64:
        """Least seconds of rows whose first rank has to fit; on the best links of all orders until placed."""
        plans = rows.plans
        wires = placed_wires(self.problem, plans) if rows.is_placed else self._best_wires(plans)
        own_s = first_rank_s(self.problem, plans, wires, self.limit_bytes)
        return np.maximum(rows.seconds, own_s)

    def _best_wires(self, plans: Plans) -> Wires:
        return best_wires(self.problem, plans, orders(self.problem, self.limits))

    def may_fit(self, plans: Plans, states: LeastStates) -> Bool:
        """Plans whose least memory does not exceed what the accepted verdict allows."""
        return self._accepts(
            least_bytes(self.problem, plans, states), least_host_verdict(self.problem, plans, states)
        )

    def _accepts(self, device_bytes: F64, host_verdict: I64) -> Bool:
        return np.asarray((device_bytes <= self.limit_bytes) & (host_verdict <= self.accepted.host))

    @property
    def limit_bytes(self) -> float:
        """Need up to which plans are accepted."""
        return self.problem.accelerator.memory_bytes * self.accepted.device_share

    def plans(self, columns: dict[str, I64]) -> Plans:
        """Plans from columns, compiled and with fused loss where engine and user allow."""
        return _plans(self.problem, self.limits, columns)

    def _least_s(self, table: I64, states: LeastStates) -> F64:
        parts = [
            least_s(self.problem, plans, self._best_wires(plans), states.take(rows), self.limit_bytes)
            for rows, plans in _chunks(self.problem, self.limits, table)
        ]
        return np.concatenate(parts) if parts else np.empty(0)


def _plans(problem: Problem, limits: SpaceLimits, columns: dict[str, I64]) -> Plans:
    return finished(problem, limits, fill(columns, len(columns["dp"]), limits.plain))


def _chunks(problem: Problem, limits: SpaceLimits, table: I64) -> Iterator[tuple[slice, Plans]]:
    for begin in range(0, len(table), CHUNK_ROWS):
        rows = slice(begin, begin + CHUNK_ROWS)
        yield rows, _plans(problem, limits, dict(zip(CELL, table[rows].T, strict=True)))


def _states_of(problem: Problem, limits: SpaceLimits, every: list[Group], tables: list[I64]) -> LeastStates:
    """For every cell, the states of its average rank under the leanest sharding of its group."""
    rows = [
        (g.dp, g.tp, g.pp, g.cp, ep, etp, *mode) for g in every for ep, etp in g.experts for mode in g.modes
    ]
    columns = dict(zip(STATE_FIELDS, np.array(rows, np.int64).T, strict=True))
    states = least_states(problem, _plans(problem, limits, columns))
    modes = [len(g.modes) for g in every for _ in g.experts]
    begin = np.concatenate(([0], np.cumsum(modes)[:-1]))
    repeats = [len(t) // len(g.experts) for g, t in zip(every, tables, strict=True) for _ in g.experts]
    return LeastStates(
        lasting_bytes=np.repeat(np.minimum.reduceat(states.lasting_bytes, begin), repeats),
        gradients_bytes=np.repeat(np.minimum.reduceat(states.gradients_bytes, begin), repeats),
        moved_bytes=np.repeat(np.minimum.reduceat(states.moved_bytes, begin), repeats),
    )
