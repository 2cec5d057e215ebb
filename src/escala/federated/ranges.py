"""A number that is known only within bounds: low, mid, high; as a column its last axis holds the three."""

import math
from dataclasses import dataclass

import numpy as np

from escala.errors import InvalidInput
from escala.model.columns import F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Low, mid and high of one quantity, not below zero and in this order."""

    low: float
    mid: float
    high: float

    def __post_init__(self) -> None:
        if not (0 <= self.low <= self.mid <= self.high < math.inf):
            raise InvalidInput(
                f"low {self.low:g}, mid {self.mid:g} and high {self.high:g} have to be finite, not below"
                " zero and in this order"
            )

    def column(self) -> F64:
        """The three numbers as an array of shape (3,)."""
        return np.array([self.low, self.mid, self.high])


def exactly(value: float) -> Range:
    """A number that is known: all three are equal."""
    return Range(low=value, mid=value, high=value)


def range_of(column: F64) -> Range:
    """The range that an array of shape (3,) holds."""
    low, mid, high = (float(each) for each in column)
    return Range(low=low, mid=mid, high=high)
