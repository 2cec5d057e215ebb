"""The softmax learner, whose clients misbehave once when a file beside their scenario's run says so."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from federated.softmax import Softmax, Update

ORDERS = "ESCALA_TEST_ORDERS"
HUGE = 4_000_000


class Unruly(Softmax):
    """Trains as softmax does, unless a client finds an order; each order is followed once, by one client."""

    def train(self, weights: Any, **asked: Any) -> Update:
        """Training, or what the order says."""
        made, order = super().train(weights, **asked), taken()
        if order == "raise":
            raise RuntimeError("as ordered")
        if order == "die":
            os._exit(9)
        spoilt = {
            "not-a-number": {**made.weights, "b": np.full_like(made.weights["b"], np.nan)},
            "shape": {**made.weights, "b": made.weights["b"][:-1]},
            "names": {"other": made.weights["w"]},
            "huge": {**made.weights, "b": np.zeros(HUGE, np.float32)},
        }
        return Update(
            weights=spoilt.get(order or "", made.weights),
            samples=made.samples,
            steps=made.steps,
            loss=made.loss,
            rms_loss=made.rms_loss,
        )


def taken() -> str | None:
    """The order that lies there, which is then gone."""
    place = Path(os.environ[ORDERS])
    mine = place.with_name(f"{place.name}-{os.getpid()}")
    try:
        place.rename(mine)
    except FileNotFoundError:
        return None
    order = mine.read_text()
    mine.unlink()
    return order


def learner(scenario: Any) -> Unruly:
    """What a run names."""
    return Unruly(scenario.training)
