"""Fleets by hand: n clients alike, any column replaced."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from escala.federated.fleet import Fleet


@pytest.fixture
def fleet_of_hand() -> Callable[..., Fleet]:
    """A fleet of n clients: 1 s a sample, 10 samples, 1 kB/s both ways, nothing is lost."""

    def made(clients: int, **changed: Any) -> Fleet:
        columns: dict[str, Any] = {
            "kind": np.zeros(clients, np.int64),
            "samples": np.full(clients, 10),
            "sample_s": np.ones(clients),
            "start_s": np.zeros(clients),
            "compute_w": np.ones(clients),
            "idle_w": np.ones(clients),
            "up_bytes_per_s": np.full(clients, 1e3),
            "down_bytes_per_s": np.full(clients, 1e3),
            "latency_s": np.zeros(clients),
            "arrival_ratio": np.ones(clients),
            "dropout_ratio": np.zeros(clients),
            "hours": np.ones((clients, 24), np.bool_),
            "battery_j": np.zeros(clients),
            "has_battery": np.zeros(clients, np.bool_),
            "carbon_kg_per_j": np.zeros(clients),
            "has_carbon": np.zeros(clients, np.bool_),
        }
        return Fleet(**{**columns, **changed})

    return made
