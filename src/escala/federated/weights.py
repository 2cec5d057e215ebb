"""Weights under their names as NumPy arrays: what is sent, averaged and kept. Knows no torch and no round.

Those of many clients are stacked: the first axis of every array is the client.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from escala.model.columns import F64

F32 = NDArray[np.float32]
Weights = dict[str, F32]


def less(after: Mapping[str, F32], before: Mapping[str, F32]) -> Weights:
    """What changed, by name: after - before."""
    return {name: after[name] - before[name] for name in before}


def moved(weights: Mapping[str, F32], change: Mapping[str, F32], rate: float) -> Weights:
    """Weights after a step: weights + rate * change."""
    return {name: each + np.float32(rate) * change[name] for name, each in weights.items()}


def zeros(weights: Mapping[str, F32]) -> Weights:
    """Arrays of the same shapes that hold 0."""
    return {name: np.zeros_like(each) for name, each in weights.items()}


def stacked(each: Sequence[Mapping[str, F32]]) -> Weights:
    """The arrays of several clients as one with a row for each."""
    return {name: np.stack([one[name] for one in each]) for name in each[0]}


def weighted_sum(many: Mapping[str, F32], shares: F64) -> Weights:
    """Sum over clients of share * array, added up in 64 bits. Shapes: (clients, ...), (clients,)."""
    return {name: np.tensordot(shares, each, axes=1).astype(np.float32) for name, each in many.items()}


def weights_bytes(weights: Mapping[str, F32]) -> int:
    """Bytes of all arrays without names and shapes."""
    return sum(each.nbytes for each in weights.values())
