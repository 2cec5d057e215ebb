"""How a job speeds up with more devices: efficiency, Karp-Flatt share, a fit of what is lost, extrapolation.

Knows times and shares, no job. All devices are counted in terms of the first point's: p = devices / first
devices. Cost means device-seconds of the same work in terms of the first point's: 1 / efficiency.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import F64

SERIAL, COMMUNICATION, WAITING, ALL = "serial", "communication", "waiting", "all together"
STUDENT_80: Final = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372)
"""Quantile 0.9 of Student's t for 1 to 10 degrees of freedom, any table; the last one for more."""


def speedup(rates: F64) -> F64:
    """Rate / rate of the first point."""
    return np.asarray(rates / rates[0], np.float64)


def efficiency(rates: F64, devices: F64) -> F64:
    """Speed-up / devices in terms of the first point's."""
    return np.asarray(speedup(rates) / (devices / devices[0]), np.float64)


def efficiency_ends(step_s: F64, low_s: F64, high_s: F64, found: F64) -> tuple[F64, F64]:
    """Efficiency if steps took their high and low quartiles, the first point's the other way round.

    The first point has efficiency 1 by definition.
    """
    low = found * (low_s[0] / step_s[0]) * (step_s / high_s)
    high = found * (high_s[0] / step_s[0]) * (step_s / low_s)
    low[0] = high[0] = 1.0
    return low, high


def serial_share(speedups: F64, ratios: F64) -> F64:
    """Karp-Flatt: (1 / S - 1 / p) / (1 - 1 / p); NaN at the first point, where p is 1.

    Source: Karp and Flatt 1990, Communications of the ACM 33(5).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return (1.0 / speedups - 1.0 / ratios) / (1.0 - 1.0 / ratios)


def amdahl_speedup(serial: F64 | float, ratios: F64) -> F64:
    """Speed-up of the same work: 1 / (f + (1 - f) / p), at most 1 / f.

    Source: Amdahl 1967, AFIPS 30.
    """
    return np.asarray(1.0 / (serial + (1.0 - serial) / ratios), np.float64)


def gustafson_speedup(serial: F64 | float, ratios: F64) -> F64:
    """Speed-up when the work grows with the devices: p - f (p - 1).

    Source: Gustafson 1988, Communications of the ACM 31(5).
    """
    return np.asarray(ratios - serial * (ratios - 1.0), np.float64)


def serial_growth(ratios: F64) -> F64:
    """Devices - 1: while one device does what is serial, p - 1 others wait (Amdahl 1967)."""
    return ratios - 1.0


def message_growth(ratios: F64, *, is_weak: bool) -> F64:
    """Device-seconds of a ring's messages: p - 1 on the same batch, (p - 1) / p on p batches.

    A ring moves 2 (p - 1) / p of the gradients on each of p devices; latency is left out.
    """
    return (ratios - 1.0) / ratios if is_weak else ratios - 1.0


def waiting_growth(ratios: F64) -> F64:
    """sqrt(2 ln p): how far the last of p devices is behind the mean, in standard deviations.

    Expected maximum of p normal draws for large p; an assumption for few devices.
    """
    return np.sqrt(2.0 * np.log(ratios))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One cause of lost device-seconds: cost(p) = first_share + share * growth(p).

    All in terms of the first point's cost. `share_error` is the standard error of the share, None where one
    point decides it.
    """

    cause: str
    first_share: float
    share: float
    share_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What is lost with more devices, by cause; `rows` points decide each share."""

    is_weak: bool
    rows: int
    losses: tuple[Loss, ...]

    def cost(self, ratios: F64) -> F64:
        """First cost + shares * growth."""
        return sum(
            (each.first_share + each.share * self._growth(each, ratios) for each in self.losses),
            np.zeros_like(ratios),
        )

    def cost_error(self, ratios: F64) -> F64 | None:
        """Half of the 80 % interval: Student's t * root of the sum of squared errors of the shares."""
        errors = [each.share_error for each in self.losses]
        if any(each is None for each in errors):
            return None
        squares = np.zeros_like(ratios)
        for error, each in zip(errors, self.losses, strict=True):
            squares += np.square((error or 0.0) * self._growth(each, ratios))
        return STUDENT_80[min(self.rows - 1, len(STUDENT_80)) - 1] * np.sqrt(squares)

    def _growth(self, loss: Loss, ratios: F64) -> F64:
        return _growth(loss.cause, ratios, is_weak=self.is_weak)


def _growth(cause: str, ratios: F64, *, is_weak: bool) -> F64:
    if cause == COMMUNICATION:
        return message_growth(ratios, is_weak=is_weak)
    return waiting_growth(ratios) if cause == WAITING else serial_growth(ratios)


def fit(
    ratios: F64, costs: F64, communication: F64 | None, waiting: F64 | None, *, is_weak: bool
) -> Fit | None:
    """Least squares of each cause on its own growth, from every point but the first; None where there is one.

    `communication` and `waiting` are shares of the step at each point. What they leave of the cost is fitted
    as serial; where they are not known, all of it.
    """
    if len(ratios) < 2:
        return None
    parts = _parts(costs, communication, waiting)
    return Fit(
        is_weak=is_weak,
        rows=len(ratios) - 1,
        losses=tuple(
            _loss(cause, values, _growth(cause, ratios, is_weak=is_weak)) for cause, values in parts.items()
        ),
    )


def _parts(costs: F64, communication: F64 | None, waiting: F64 | None) -> dict[str, F64]:
    if communication is None:
        return {ALL: costs}
    known = {COMMUNICATION: costs * communication}
    if waiting is not None:
        known[WAITING] = costs * waiting
    return {SERIAL: costs - sum(known.values(), np.zeros_like(costs)), **known}


def _loss(cause: str, costs: F64, growth: F64) -> Loss:
    """Share = sum(growth * increase) / sum(growth^2), with the standard error of such a slope."""
    increase, growth, first = costs[1:] - costs[0], growth[1:], float(costs[0])
    weight = float(growth @ growth)
    share = float(growth @ increase) / weight
    free = len(increase) - 1
    left = increase - share * growth
    error = float(np.sqrt(left @ left / free / weight)) if free else None
    return Loss(cause=cause, first_share=first, share=share, share_error=error)
