"""What a search has found so far: plans near the best, the best of each layout and family, the bound."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from escala.model.columns import F64, I64, Bool, distinct
from escala.model.plan import Plan, Plans, concatenate
from escala.planning.cells import CELL
from escala.planning.simplicity import family_masks

LAYOUT: Final = ("dp", "tp", "pp", "cp", "ep", "etp", "zero", "reshard", "shard")
MANY_ROWS: Final = 65536


@dataclass(slots=True)
class Pool:
    """Plans that may be shown; grows while the search runs, and forgets what fell behind.

    `top` layouts are ranked, plans within `slack` times the best are near. `layouts` has the best value of
    each layout kept, `families` the best value and plan of each family.
    """

    top: int
    slack: float
    kept: list[tuple[Plans, F64]] = field(default_factory=list)
    layouts: dict[tuple[int, ...], float] = field(default_factory=dict)
    families: dict[str, tuple[float, Plan]] = field(default_factory=dict)
    best: float = np.inf
    last: float = np.inf

    def bound(self) -> float:
        """Value above which a plan can enter neither the ranking nor the set near the best."""
        return max(self.best * self.slack, self.last)

    def family_best(self, name: str) -> float:
        """Value of the best plan of a family so far."""
        return self.families[name][0] if name in self.families else np.inf

    def may_show(self, plans: Plans, values: F64) -> Bool:
        """Plans that may enter the ranking, the set near the best, or become the best of a family."""
        matters = values <= self.bound()
        for name, mask in family_masks(plans).items():
            matters |= mask & (values <= self.family_best(name))
        return matters

    def may_show_cells(self, table: I64, bounds: F64) -> Bool:
        """Cells of which some plan may be shown; purely data-parallel ones always, they are few."""
        matters, pure = bounds <= self.bound(), np.ones(len(table), np.bool_)
        for name in ("tp", "pp", "cp", "ep"):
            used = table[:, CELL.index(name)] > 1
            matters |= used & (bounds <= self.family_best(name))
            pure &= ~used
        return np.asarray(matters | pure)

    def add(self, plans: Plans, values: F64) -> None:
        """Keep what is within the bound or improves a family."""
        for name, mask in family_masks(plans).items():
            rows = np.flatnonzero(mask)
            if len(rows):
                row = int(rows[np.argmin(values[rows])])
                if values[row] < self.family_best(name):
                    self.families[name] = (float(values[row]), plans[row])
        self.best = min(self.best, float(values.min(initial=np.inf)))
        rows = np.flatnonzero(values <= self.bound())
        self._note_layouts(plans.take(rows), values[rows])
        self.kept.append((plans.take(rows), values[rows]))
        if sum(len(part) for _, part in self.kept) > MANY_ROWS:
            self.kept = [self.near(self.bound())]

    def _note_layouts(self, plans: Plans, values: F64) -> None:
        order = np.argsort(values, kind="stable")
        keys = layout_keys(plans)[order]
        for row in first_of_each(keys):
            key, value = tuple(keys[row].tolist()), float(values[order[row]])
            self.layouts[key] = min(value, self.layouts.get(key, np.inf))
        ranked = sorted(self.layouts.values())
        self.last = ranked[self.top - 1] if len(ranked) >= self.top else np.inf

    def near(self, limit: float) -> tuple[Plans, F64]:
        """Kept plans with a value up to the limit."""
        plans = concatenate([part for part, _ in self.kept])
        values = np.concatenate([part for _, part in self.kept])
        return plans.take(values <= limit), values[values <= limit]


def layout_keys(plans: Plans) -> I64:
    """One row of layout fields a plan."""
    return np.column_stack([getattr(plans, name) for name in LAYOUT])


def first_of_each(keys: I64) -> I64:
    """Row of the first occurrence of every distinct key, in order of occurrence."""
    return np.sort(distinct(list(keys.T))[0])
