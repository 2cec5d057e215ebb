"""Fleets by hand: n clients alike, any column replaced."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from escala.federated.fleet import Fleet


@pytest.fixture
def fleet_of_hand() -> Callable[..., Fleet]:
    """A fleet of n clients: 1 s a sample, 10 samples, 1 kB/s both ways, nothing is lost."""

    def made(clients: int, **changed: Any) -> Fleet:
        columns: dict[str, Any] = {each.name: np.zeros(clients) for each in fields(Fleet)}
        columns |= {
            "samples": np.full(clients, 10),
            "sample_s": np.ones(clients),
            "up_bytes_per_s": np.full(clients, 1e3),
            "down_bytes_per_s": np.full(clients, 1e3),
            "arrival_ratio": np.ones(clients),
            "hours": np.ones((clients, 24), np.bool_),
            "carbon_kg_per_j": np.zeros((clients, 24)),
        }
        return Fleet(**{**columns, **changed})

    return made
