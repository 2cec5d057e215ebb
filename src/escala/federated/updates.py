"""What clients give back after training, a row each. NumPy only."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from escala.federated.weights import Weights
from escala.model.columns import F64, I64, Bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Updates:
    """Changes of weights, stacked; samples, steps; mean and root mean square of last losses. Shapes (n,).

    Losses are those of each sample when it was last trained on; `steps` counts batches.
    """

    clients: I64
    changes: Weights
    samples: I64
    steps: I64
    loss: F64
    rms_loss: F64

    def are_finite(self) -> Bool:
        """Which updates hold no NaN and no infinity."""
        found = np.isfinite(self.rms_loss)
        for each in self.changes.values():
            found &= np.isfinite(each.reshape(len(found), -1)).all(axis=1)
        return found


def of_rows(updates: Updates, is_kept: Bool) -> Updates:
    """Some of them."""
    if is_kept.all():
        return updates
    return Updates(
        clients=updates.clients[is_kept],
        changes={name: each[is_kept] for name, each in updates.changes.items()},
        samples=updates.samples[is_kept],
        steps=updates.steps[is_kept],
        loss=updates.loss[is_kept],
        rms_loss=updates.rms_loss[is_kept],
    )


def row(changes: Weights, at: int) -> Weights:
    """The change of one client."""
    return {name: each[at] for name, each in changes.items()}


def joined(parts: Sequence[Updates]) -> Weights:
    """Changes of all parts, stacked."""
    return {name: np.concatenate([each.changes[name] for each in parts]) for name in parts[0].changes}
