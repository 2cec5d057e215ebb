"""Saturating curves, level - gap * g(round), and how well each fits. Knows numbers by round, no target.

g is a power law or a (stretched) exponential. All heights of the level, time scales and shapes of a grid are
tried, drawn closer around those that count; each counts by likelihood with unknown noise and by its prior.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import F64, I64

GRID: Final = (25, 17, 9)
CLOSER: Final = 2
COUNTS: Final = 1e-3
"""Points in height, time scale and shape; drawn closer so often, to curves that count so much of the best."""
SCALES: Final = (0.02, 50.0)
"""Time scales that are tried, in terms of the pilot."""
HEIGHT_POWER: Final = 2.0
"""Prior of the level: (its way from where the metric is to the most that it can be)^2."""
BELIEVED: Final = 6.0
"""So many points count at most, since no family is the truth.

This number and the prior were chosen on curves (20 synthetic, 6 of training) other than those that the
documentation judges by.
"""
LEAST_NOISE: Final = 1e-3
"""Of the pilot's span: no curve is believed to fit better."""
MOST_CORRELATION: Final = 0.9
TINY: Final = 1e-300
Function = Callable[[F64, F64, F64], F64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fits:
    """Every curve of the grid: family, level, gap, scale, shape, noise, and its share. Shapes (m,)."""

    family: I64
    level: F64
    gap: F64
    scale: F64
    shape: F64
    noise: F64
    share: F64


def power(rounds: F64, scale: F64, shape: F64) -> F64:
    """(1 + round / scale)^-shape."""
    return np.asarray((1.0 + rounds / scale) ** -shape)


def power_inverse(left: F64, scale: F64, shape: F64) -> F64:
    """The round at which a power law is at `left`."""
    return np.asarray(scale * (left ** (-1.0 / shape) - 1.0))


def exponential(rounds: F64, scale: F64, shape: F64) -> F64:
    """exp(-(round / scale)^shape)."""
    return np.asarray(np.exp(-((rounds / scale) ** shape)))


def exponential_inverse(left: F64, scale: F64, shape: F64) -> F64:
    """The round at which an exponential is at `left`."""
    return np.asarray(scale * (-np.log(left)) ** (1.0 / shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """What is left of the gap by round, scale and shape, from 1 to 0; its inverse; shapes that are tried."""

    name: str
    curve: Function
    inverse: Function
    shapes: tuple[float, float]


FAMILIES: Final = (
    Shapes(name="power law", curve=power, inverse=power_inverse, shapes=(0.25, 3.0)),
    Shapes(name="exponential", curve=exponential, inverse=exponential_inverse, shapes=(0.4, 2.0)),
)


def fits_of(rounds: F64, values: F64, cap: float) -> Fits:
    """Every curve of both grids with its share: likelihood with unknown noise * prior * size of its cell."""
    least = float(np.median(values[-max(len(values) // 3, 3) :]))
    told = _Told(rounds=rounds, values=values, least=least, cap=cap)
    parts = [_finest(told, at) for at in range(len(FAMILIES))]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    log_share = whole.pop("log_share")
    share = np.exp(log_share - log_share.max())
    return Fits(**whole, share=share / share.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Told:
    """What a pilot says: the level is between `least` and `cap`."""

    rounds: F64
    values: F64
    least: float
    cap: float

    def weight(self) -> F64:
        """What each point counts: the square of its place, as the last ones say more of what follows."""
        weight = np.arange(1.0, len(self.rounds) + 1) ** 2
        return weight / weight.sum()


def _finest(told: _Told, at: int) -> dict[str, F64]:
    """The grid of one family, drawn closer twice around the curves that count."""
    last = float(told.rounds[-1])
    widest = np.array([[0.0, 1.0], np.log(np.array(SCALES) * last), np.log(FAMILIES[at].shapes)])
    box = widest
    for _ in range(CLOSER):
        grid, found = _grid(told, at, box)
        counts = found["log_share"] > found["log_share"].max() + math.log(COUNTS)
        step = (box[:, 1] - box[:, 0]) / (np.array(GRID) - 1)
        ends = np.stack([grid[:, counts].min(axis=1) - step, grid[:, counts].max(axis=1) + step], axis=1)
        box = np.clip(ends, widest[:, :1], widest[:, 1:])
    _, found = _grid(told, at, box)
    cell = np.prod((box[:, 1] - box[:, 0]) / (widest[:, 1] - widest[:, 0]))
    return found | {"log_share": found["log_share"] + math.log(cell)}


def _grid(told: _Told, at: int, box: F64) -> tuple[F64, dict[str, F64]]:
    """Curves of one family on a grid in height, log scale and log shape; gaps by least squares."""
    axes = [np.linspace(low, high, points) for (low, high), points in zip(box, GRID, strict=True)]
    height, log_scale, log_shape = (each.ravel() for each in np.meshgrid(*axes, indexing="ij"))
    levels = told.least + (told.cap - told.least) * axes[0]
    scale, shape = np.exp(log_scale), np.exp(log_shape)
    curves = len(scale) // len(levels)
    g = FAMILIES[at].curve(told.rounds[None], scale[:curves, None], shape[:curves, None])
    below = levels[:, None] - told.values[None]
    weight = told.weight()
    overlap, length = (below * weight) @ g.T, (g**2) @ weight
    gap = np.maximum(overlap / np.maximum(length, TINY), 0.0)
    squares = ((below**2) @ weight)[:, None] - 2 * gap * overlap + gap**2 * length
    span = float(np.ptp(told.values)) or 1.0
    found = {
        "family": np.full(len(scale), at),
        "level": told.least + (told.cap - told.least) * height,
        "gap": gap.ravel(),
        "scale": scale,
        "shape": shape,
        "noise": np.sqrt(np.maximum(squares, 0.0).ravel() + (LEAST_NOISE * span) ** 2),
    }
    likelihood = -_independent(found, told) * np.log(found["noise"])
    found["log_share"] = likelihood + HEIGHT_POWER * np.log(np.maximum(height, TINY))
    return np.stack([height, log_scale, log_shape]), found


def _independent(found: dict[str, F64], told: _Told) -> float:
    """How many of the points tell something new.

    (1 - r) / (1 + r) of them, with r of neighbouring residuals of the best curve; and ever fewer the more
    there are, since no family is the truth.
    """
    r = correlation(_residuals(found, int(found["noise"].argmin()), told))
    points = (1.0 - r) / (1.0 + r) / (told.weight() ** 2).sum()
    return points / (1.0 + points / BELIEVED)


def _residuals(found: dict[str, F64], row: int, told: _Told) -> F64:
    g = FAMILIES[int(found["family"][row])].curve(told.rounds, found["scale"][row], found["shape"][row])
    return np.asarray(told.values - found["level"][row] + found["gap"][row] * g)


def correlation(residuals: F64) -> float:
    """Of neighbours, 0 to 0.9."""
    spread = (residuals**2).sum()
    found = (residuals[1:] * residuals[:-1]).sum() / spread if spread > 0 else 0.0
    return float(np.clip(found, 0.0, MOST_CORRELATION))


def at_round(fits: Fits, rounds: F64) -> F64:
    """Each curve at a round of its own."""
    value = np.empty(len(rounds))
    for at, family in enumerate(FAMILIES):
        own = fits.family == at
        left = family.curve(rounds[own], fits.scale[own], fits.shape[own])
        value[own] = fits.level[own] - fits.gap[own] * left
    return value


def crossing_of(fits: Fits, goal: float) -> F64:
    """The round at which each curve itself is at the target; infinite where its level is below."""
    left = (fits.level - goal) / np.maximum(fits.gap, TINY)
    round_ = np.full(len(left), np.inf)
    for at, family in enumerate(FAMILIES):
        own = (fits.family == at) & (left > 0)
        with np.errstate(over="ignore"):
            round_[own] = family.inverse(np.minimum(left[own], 1.0), fits.scale[own], fits.shape[own])
    return round_
