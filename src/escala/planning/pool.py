"""What a search has found so far: the best plan of each style and family, and the bound that follows."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from escala.model.columns import F64, I64
from escala.model.plan import Plan, Plans
from escala.planning.simplicity import family_masks

STYLE: Final = (
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "zero",
    "reshard",
    "shard",
    "placement",
    "schedule",
    "recompute",
    "split",
    "sp",
)


LAYOUT: Final = STYLE[:9]


@dataclass(slots=True)
class Pool:
    """Best value and plan by style, and by family; grows while the search runs."""

    top: int
    slack: float
    styles: dict[tuple[int, ...], tuple[float, Plan]] = field(default_factory=dict)
    layouts: dict[tuple[int, ...], float] = field(default_factory=dict)
    families: dict[str, tuple[float, Plan]] = field(default_factory=dict)
    best: float = np.inf
    last: float = np.inf

    def bound(self) -> float:
        """Value above which a plan can enter neither the ranking nor the set near the best."""
        return max(self.best * self.slack, self.last)

    def add(self, plans: Plans, values: F64) -> None:
        """Take what improves a style within the bound or a family."""
        for name, mask in family_masks(plans).items():
            rows = np.flatnonzero(mask)
            if len(rows):
                row = int(rows[np.argmin(values[rows])])
                if values[row] < self.families.get(name, (np.inf, None))[0]:
                    self.families[name] = (float(values[row]), plans[row])
        self.best = min(self.best, float(values.min(initial=np.inf)))
        keys = np.column_stack([getattr(plans, name) for name in STYLE])
        order = np.argsort(values, kind="stable")
        order = order[values[order] <= self.bound()]
        for row in order[first_of_each(keys[order])]:
            self._take(tuple(keys[row].tolist()), float(values[row]), plans, int(row))
        self._trim()

    def _take(self, key: tuple[int, ...], value: float, plans: Plans, row: int) -> None:
        if value < self.styles.get(key, (np.inf, None))[0]:
            self.styles[key] = (value, plans[row])
            layout = key[: len(LAYOUT)]
            self.layouts[layout] = min(value, self.layouts.get(layout, np.inf))

    def _trim(self) -> None:
        values = sorted(self.layouts.values())
        self.last = values[self.top - 1] if len(values) >= self.top else np.inf
        limit = self.bound()
        self.styles = {key: kept for key, kept in self.styles.items() if kept[0] <= limit}


def first_of_each(keys: I64) -> I64:
    """Row of the first occurrence of every distinct key, in order of occurrence."""
    if not len(keys):
        return np.empty(0, np.int64)
    _, first = np.unique(keys, axis=0, return_index=True)
    return np.sort(first)
