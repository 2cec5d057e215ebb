"""How much charge each client has left: drained by rounds, filled outside its hours. Knows no network.

Assumption: a client recharges in the hours in which it does not take part, or at any time where its hours are
the whole day; from empty to full in three hours. Under a fifth of its charge it does not take part.
"""

from typing import Final

import numpy as np

from escala.federated.fleet import HOURS, Fleet
from escala.federated.selection import RESERVE
from escala.model.columns import F64, I64, Bool
from escala.units import HOUR_S

FULL_CHARGE_S: Final = 3 * HOUR_S


class Batteries:
    """Charge of every client, brought up to date when it is asked for. All are full at first."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._charge_j = fleet.battery_j.copy()
        self._charged_s = np.zeros(len(fleet))
        _, first, self._pattern = np.unique(
            fleet.hours @ (1 << np.arange(HOURS)), return_index=True, return_inverse=True
        )
        patterns = fleet.hours[first]
        charging = ~patterns | patterns.all(axis=1, keepdims=True)
        self._until_hour_s = np.concatenate(
            [np.zeros((len(first), 1)), np.cumsum(charging, axis=1) * HOUR_S], axis=1
        )

    @property
    def are_there(self) -> bool:
        """Whether any client has a battery."""
        return bool(self._fleet.has_battery.any())

    def charge_j(self, now_s: float) -> F64:
        """Charge of each client: what was left + battery / three hours * seconds of charging since."""
        spent_s = self._charging_s(now_s)[self._pattern] - self._charged_s
        gained_j = self._fleet.battery_j / FULL_CHARGE_S * np.maximum(spent_s, 0.0)
        return np.minimum(self._charge_j + gained_j, self._fleet.battery_j)

    def charge_ratio(self, charge_j: F64) -> F64:
        """Charge over capacity; 1 where there is no battery."""
        fleet = self._fleet
        return np.divide(charge_j, fleet.battery_j, out=np.ones(len(fleet)), where=fleet.has_battery)

    def are_willing(self, charge_ratio: F64) -> Bool:
        """Which clients have charge enough to take part."""
        return charge_ratio >= RESERVE

    def drain(self, clients: I64, spent_j: F64, charge_j: F64, end_s: F64) -> None:
        """What a round took from the charge that clients began with; charging goes on after its end."""
        self._charge_j[clients] = np.maximum(charge_j[clients] - spent_j, 0.0)
        patterns = self._pattern[clients]
        self._charged_s[clients] = _charging_s(self._until_hour_s[patterns], end_s)

    def _charging_s(self, now_s: float) -> F64:
        """Seconds of charging since the start, for each pattern of hours."""
        return _charging_s(self._until_hour_s, np.full(len(self._until_hour_s), now_s))


def _charging_s(until_hour_s: F64, now_s: F64) -> F64:
    """Seconds of charging from 0 to now: whole days, whole hours of this day, the part of this hour."""
    hours, into_s = np.divmod(now_s, HOUR_S)
    days, hour = np.divmod(hours.astype(np.int64), HOURS)
    rows = np.arange(len(until_hour_s))
    before_s, after_s = until_hour_s[rows, hour], until_hour_s[rows, hour + 1]
    return days * until_hour_s[:, -1] + before_s + (after_s - before_s) * into_s / HOUR_S
