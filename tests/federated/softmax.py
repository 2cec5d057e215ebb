"""A learner that needs NumPy only: softmax regression on points around three centres, 20 a client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from escala.federated.order import EMPTY, batches, generator

CLASSES, INPUTS, SAMPLES = 3, 4, 20
CENTRES = np.random.default_rng(7).normal(size=(CLASSES, INPUTS))


@dataclass(frozen=True)
class Update:
    """What training gave."""

    weights: dict[str, Any]
    samples: int
    steps: int
    loss: float
    rms_loss: float


class Softmax:
    """Trains by plain SGD on the batches of `order`."""

    def __init__(self, training: Any) -> None:
        self.training = training

    def first(self) -> dict[str, Any]:
        """Zeros."""
        return {"w": np.zeros((INPUTS, CLASSES), np.float32), "b": np.zeros(CLASSES, np.float32)}

    def samples(self, client: int) -> int:
        """All have as many."""
        return SAMPLES

    def train(
        self, weights: Mapping[str, Any], *, client: int, round_: int, pull: Mapping[str, Any] | None = None
    ) -> Update:
        """SGD from the given weights."""
        w, b = (weights[name].astype(np.float64) for name in ("w", "b"))
        x, y = points(client)
        losses = np.zeros(SAMPLES)
        order = batches(
            SAMPLES,
            self.training.batch,
            self.training.local_epochs,
            seed=self.training.seed,
            client=client,
            round_=round_,
        )
        for rows in order:
            here = rows[rows != EMPTY]
            p = shares(x[here] @ w + b)
            losses[here] = -np.log(p[np.arange(len(here)), y[here]])
            error = (p - np.eye(CLASSES)[y[here]]) / len(here)
            pulled = pull or {"w": 0.0, "b": 0.0}
            w -= self.training.learning_rate * (x[here].T @ error + pulled["w"])
            b -= self.training.learning_rate * (error.sum(axis=0) + pulled["b"])
        return Update(
            weights={"w": w.astype(np.float32), "b": b.astype(np.float32)},
            samples=SAMPLES,
            steps=len(order),
            loss=float(losses.mean()),
            rms_loss=float(np.sqrt((losses**2).mean())),
        )

    def score(self, weights: Mapping[str, Any]) -> dict[str, float]:
        """Accuracy on points that no client has."""
        x, y = points(-1)
        return {"accuracy": float(((x @ weights["w"] + weights["b"]).argmax(axis=1) == y).mean())}


def points(client: int) -> tuple[Any, Any]:
    """Samples and labels of a client."""
    draws = generator(3, client)
    y = draws.integers(0, CLASSES, SAMPLES)
    return CENTRES[y] + draws.normal(size=(SAMPLES, INPUTS)), y


def shares(logits: Any) -> Any:
    """Softmax."""
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def learner(scenario: Any) -> Softmax:
    """What a run names."""
    return Softmax(scenario.training)
