"""How evenly clients take part. Knows how often each was asked and counted, not how well it is served."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from escala.model.columns import F64, I64, Bool

EVEN: Final = 1.0


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """One class: its clients, their share of all updates over their share of clients, who was never asked."""

    name: str
    clients: int
    updates_per_share: float
    never_asked_share: float


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """Participation over all clients.

    Gini is 0 where all took part alike and near 1 where one did all; Jain is 1 and 1 / clients there.
    """

    gini: float
    jain: float
    never_asked_share: float
    never_counted_share: float
    classes: tuple[Coverage, ...]


def fairness_of(asked: I64, counted: I64, kind: I64, names: Sequence[str]) -> Fairness:
    """Evenness of updates that count, and coverage by class. Shapes (n,)."""
    return Fairness(
        gini=gini(counted.astype(np.float64)),
        jain=jain(counted.astype(np.float64)),
        never_asked_share=float((asked == 0).mean()),
        never_counted_share=float((counted == 0).mean()),
        classes=tuple(_coverage(name, asked, counted, kind == at) for at, name in enumerate(names)),
    )


def gini(taken: F64) -> float:
    """Half the mean difference between two clients / the mean: 0 is even. Source: Gini 1912, sorted form."""
    total, clients = taken.sum(), len(taken)
    if total == 0:
        return 0.0
    ranks = np.arange(1, clients + 1)
    return float(2 * (ranks * np.sort(taken)).sum() / (clients * total) - (clients + 1) / clients)


def jain(taken: F64) -> float:
    """(Sum)^2 / (clients * sum of squares): 1 is even. Source: Jain, Chiu and Hawe 1984."""
    squares = (taken**2).sum()
    return EVEN if squares == 0 else float(taken.sum() ** 2 / (len(taken) * squares))


def _coverage(name: str, asked: I64, counted: I64, is_in: Bool) -> Coverage:
    share = counted[is_in].sum() / max(counted.sum(), 1)
    return Coverage(
        name=name,
        clients=int(is_in.sum()),
        updates_per_share=float(share / is_in.mean()),
        never_asked_share=float((asked[is_in] == 0).mean()),
    )
