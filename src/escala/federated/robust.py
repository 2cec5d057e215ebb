"""Means that a few lying clients cannot carry away: median, trimmed mean, Krum, norm bound.

The same rules as Flower's strategies, on the changes of all clients of a round at once. NumPy only.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.federated.privacy import clipped
from escala.federated.refusals import least_updates
from escala.federated.training import Robust, Training
from escala.model.columns import F64

F32 = NDArray[np.float32]
LAST_DIGITS: Final = 1e-9
KRUM_APART: Final = 2
"""Krum looks at the n - f - 2 nearest updates (Blanchard et al. 2017, section 4)."""


def robust_mean(training: Training, changes: dict[str, F32], shares: F64) -> dict[str, F32]:
    """One change of the weights from those of several clients, by the rule of the training.

    Shapes: every array (clients, ...), `shares` (clients,) with sum 1. Median, trimmed mean and Krum count
    every client the same, whatever its share. Too few updates for the rule are refused.
    """
    updates = len(shares)
    least = least_updates(training.robust, training.attackers)
    if updates < least:
        raise InvalidInput(
            f"{training.robust.value} against {training.attackers} attackers needs {least} updates and"
            f" {updates} came; repeat the round or ask more clients"
        )
    if training.robust is Robust.MEDIAN:
        return {name: np.median(each, axis=0).astype(np.float32) for name, each in changes.items()}
    if training.robust is Robust.TRIMMED_MEAN:
        return {name: _trimmed(each, trim_ratio(training)) for name, each in changes.items()}
    if training.robust is Robust.KRUM:
        nearest = _krum(changes, training.attackers)
        return {name: each[nearest] for name, each in changes.items()}
    if training.robust is Robust.NORM_BOUND:
        assert training.norm_bound is not None
        changes = clipped(changes, training.norm_bound)
    return {name: np.tensordot(shares, each, axes=1).astype(np.float32) for name, each in changes.items()}


def trim_ratio(training: Training) -> float:
    """The share of updates cut off at each end: attackers / least clients, enough however few return.

    floor(share * updates) go, as in Flower; the last digits are raised so that 1/49 of 49 is 1.
    """
    return training.attackers / training.least_clients * (1 + LAST_DIGITS)


def _trimmed(each: F32, ratio: float) -> F32:
    """Mean of what is left of every number without its smallest and largest values."""
    ordered, cut = np.sort(each, axis=0), int(ratio * len(each))
    kept = ordered[cut : len(ordered) - cut]
    return np.asarray(kept.mean(axis=0, dtype=np.float64), np.float32)


def _krum(changes: dict[str, F32], attackers: int) -> int:
    """The update whose squared distances to its n - f - 2 nearest others have the least sum."""
    flat = np.concatenate([each.reshape(len(each), -1) for each in changes.values()], axis=1).astype(
        np.float64
    )
    apart = np.square(flat).sum(axis=1)
    distances = np.maximum(apart[:, None] + apart[None, :] - 2 * flat @ flat.T, 0.0)
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, : len(flat) - attackers - KRUM_APART]
    return int(np.argmin(nearest.sum(axis=1)))
