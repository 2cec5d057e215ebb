"""Plans on their way through the bounds, with their least seconds. Knows mesh orders, bounds nothing."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from escala.model.columns import F64, I64
from escala.model.plan import Plans


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Plans with the seconds that they need at least, each for all mesh orders of its group until placed.

    `orders` lists the mesh orders of each group, `group` is the index of a row in it. Shapes: (n,).
    """

    plans: Plans
    seconds: F64
    group: I64
    orders: tuple[tuple[int, ...], ...]
    is_placed: bool = False

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.seconds)

    @property
    def ways(self) -> I64:
        """Mesh orders that each row stands for."""
        if self.is_placed:
            return np.ones(len(self), np.int64)
        return np.array([len(orders) for orders in self.orders], np.int64)[self.group]

    def take(self, rows: Any) -> Self:
        """The given rows (indices, a mask or a slice), in that order."""
        return replace(self, plans=self.plans.take(rows), seconds=self.seconds[rows], group=self.group[rows])

    def rising(self) -> Self:
        """By rising seconds; rows that differ by rounding alone stay in the order of the space."""
        least_s = max(float(self.seconds.min(initial=np.inf)), 1e-12)
        return self.take(np.argsort((self.seconds / least_s).round(9), kind="stable"))

    def placed(self) -> Self:
        """One row for each mesh order of each row."""
        ways = self.ways
        begin = np.cumsum([0, *(len(orders) for orders in self.orders)])[self.group]
        owner = np.repeat(np.arange(len(self)), ways)
        which = np.arange(len(owner)) - np.repeat(np.cumsum(ways) - ways, ways) + begin[owner]
        codes = np.array([code for orders in self.orders for code in orders], np.int64)
        rows = self.take(owner)
        return replace(rows, plans=replace(rows.plans, placement=codes[which]), is_placed=True)
