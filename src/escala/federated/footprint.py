"""Joules and carbon of a round by phase, low, mid and high, through the formulas of `phases`. Knows no clock.

A client's power is drawn once; its doubt is that of its class: low and high are the same shares of what was
drawn as they are of the class's mid. The energy of a byte is that of its path.
"""

from typing import Final

import numpy as np

from escala.catalog.places import grid_carbon
from escala.federated.fates import Fates
from escala.federated.fleet import Fleet
from escala.federated.phases import RADIO_W, moving_j, serving_j, waiting_j, working_j
from escala.federated.ranges import Range
from escala.federated.scenario import Scenario
from escala.model.columns import F64

PHASES: Final = ("compute", "up", "down", "wait", "server")
Triple = tuple[float, float, float]


class Footprint:
    """What rounds of one fleet spend."""

    def __init__(self, scenario: Scenario, fleet: Fleet) -> None:
        self._fleet, self._server = fleet, scenario.server
        self._most = max(len(each.device.targets) for each in scenario.clients)
        self._power_factors = np.ones((len(scenario.clients) * self._most, 3))
        for kind, each in enumerate(scenario.clients):
            for place, target in enumerate(each.device.targets):
                self._power_factors[kind * self._most + place] = _doubt(target.power_w)
        self._idle_factors = np.stack([_doubt(each.device.idle_w) for each in scenario.clients])
        self._byte_j = np.stack([each.access.energy_j_per_byte.column() for each in scenario.clients])
        country = scenario.server_country or scenario.central.country
        self._server_kg_per_j = None if country is None else grid_carbon(country).value

    def of(
        self, fates: Fates, wait_s: F64, round_s: float, hour: int
    ) -> tuple[dict[str, Triple], Triple | None]:
        """Energy by phase of those that were asked and of the server, and their carbon where it is known.

        Carbon is that of each client's grid in the hour in which the round began.
        """
        clients, fleet = fates.clients, self._fleet
        kind = fleet.kind[clients]
        group = kind * self._most + fleet.target[clients]
        compute_w = fleet.compute_w[clients, None] * self._power_factors[group]
        idle_w = fleet.idle_w[clients, None] * self._idle_factors[kind]
        radio_w = RADIO_W.column() * fleet.has_battery[clients, None]
        byte_j = self._byte_j[kind]
        spent = {
            "compute": working_j(fates.work_s[:, None], compute_w, idle_w),
            "up": moving_j(fates.up_s[:, None], idle_w, radio_w, fates.up_bytes[:, None], byte_j),
            "down": moving_j(fates.down_s[:, None], idle_w, radio_w, fates.down_bytes[:, None], byte_j),
            "wait": waiting_j(np.where(fleet.has_battery[clients], 0.0, wait_s)[:, None], idle_w),
        }
        server_j = serving_j(round_s, self._server.power_w.column(), self._server.pue)
        energy_j = {phase: triple_of(each.sum(axis=0)) for phase, each in spent.items()}
        return energy_j | {"server": triple_of(server_j)}, self._carbon_kg(fates, spent, server_j, hour)

    def _carbon_kg(self, fates: Fates, spent: dict[str, F64], server_j: F64, hour: int) -> Triple | None:
        clients = fates.clients
        if self._server_kg_per_j is None or not self._fleet.has_carbon[clients].all():
            return None
        kg_per_j = self._fleet.carbon_kg_per_j[clients, hour]
        clients_kg = kg_per_j @ sum(spent.values(), start=np.zeros((len(clients), 3)))
        return triple_of(clients_kg + server_j * self._server_kg_per_j)


def _doubt(given: Range) -> F64:
    """Low, mid and high in terms of mid."""
    return given.column() / given.mid if given.mid > 0 else np.ones(3)


def triple_of(column: F64) -> Triple:
    """Low, mid and high of an array."""
    low, mid, high = (float(each) for each in column)
    return low, mid, high
