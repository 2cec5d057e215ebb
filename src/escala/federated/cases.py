"""Best, middle and worst at once: ranges of one option on one axis, what options share on another.

Every cost ends in two axes (own, shared), each from best to worst: rates fall, powers and seconds rise.
A comparison sets the best case of one option beside the worst of the other, and shared numbers (rates of the
clients, energy of a byte) beside themselves.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.federated.ranges import Range
from escala.model.columns import F64

BEST, MIDDLE, WORST = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """Which of best, middle and worst are looked at."""

    levels: tuple[int, ...]

    def own(self, given: Range, *, is_rate: bool = False) -> F64:
        """A range on the axis of its option. Shape (levels, 1)."""
        return self._ordered(given, is_rate)[:, None]

    def shared(self, given: Range, *, is_rate: bool = False) -> F64:
        """A range on the axis of what options share. Shape (1, levels)."""
        return self._ordered(given, is_rate)[None, :]

    def _ordered(self, given: Range, is_rate: bool) -> F64:
        column = given.column()
        return (column[::-1] if is_rate else column)[list(self.levels)]


ALL: Final = Cases(levels=(BEST, MIDDLE, WORST))
ONLY_MIDDLE: Final = Cases(levels=(MIDDLE,))


def range_over(cases: F64) -> Range:
    """Smallest, middle and largest over all cases."""
    middle = cases.shape[-1] // 2
    low, high = float(cases.min()), float(cases.max())
    return Range(low=low, mid=min(max(float(cases[..., middle, middle]), low), high), high=high)


def stacked(columns: list[F64]) -> F64:
    """One row a class, cases broadcast behind it."""
    whole = np.empty((len(columns), *np.broadcast_shapes(*(each.shape for each in columns))))
    for place, each in enumerate(columns):
        whole[place] = each
    return whole
