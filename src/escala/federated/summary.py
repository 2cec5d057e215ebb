"""What rounds came to, counted as they come: any engine's. Keeps scalars of a round, never its cohort."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec
import numpy as np

from escala.federated.fairness import Fairness, fairness_of
from escala.federated.footprint import Triple, triple_of
from escala.federated.roundrecord import Round
from escala.model.columns import F64, I64
from escala.units import HOUR_S, KWH_J

SCHEMA: Final = "escala/federate-simulate@1"
GB_BYTES: Final = 1e9
ACCURACY: Final = "accuracy"
ACCURACIES: Final = (0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99)
"""Those whose cost is told, where they are reached."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of rounds: the tenth, half and nine tenths of them took at most so long."""

    p10_s: float
    median_s: float
    p90_s: float


class Milestone(msgspec.Struct, frozen=True, kw_only=True):
    """An accuracy, and what it had taken when it was first reached: rounds, time, bytes, mid energy."""

    accuracy: float
    rounds: int
    end_s: float
    sent_bytes: int
    energy_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Round by round, in units to draw: when it ended, clients, metrics; bytes and mid energy up to it."""

    end_hours: tuple[float, ...]
    round_s: tuple[float, ...]
    returned: tuple[int, ...]
    lost: tuple[int, ...]
    sent_gb: tuple[float, ...]
    energy_kwh: tuple[float, ...]
    metrics: dict[str, tuple[float | None, ...]]


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """One run: rounds done, clients asked, lost by reason, bytes, time, energy by phase, carbon, fairness.

    Shares of those lost are of those asked, shares of energy of mid; seconds by phase are means of updates
    that count, and so is the mid energy of one.
    """

    policy: str
    engine: str
    rounds: int
    empty_rounds: int
    asked: int
    returned: int
    lost: dict[str, int]
    lost_shares: dict[str, float]
    lost_share: float
    down_bytes: int
    up_bytes: int
    end_s: float
    round_s: Spread
    phase_s: dict[str, float]
    energy_j: dict[str, Triple]
    energy_shares: dict[str, float]
    total_energy_j: Triple
    energy_j_per_update: float | None
    carbon_kg: Triple | None
    fairness: Fairness
    metrics: dict[str, float]
    milestones: tuple[Milestone, ...] = ()


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `escala federate simulate`: one run, or several that are compared on one fleet."""

    schema: str = SCHEMA
    escala: str
    scenario: str
    clients: int
    seed: int
    wanted_rounds: int
    runs: tuple[Simulated, ...]
    is_interrupted: bool
    notes: tuple[str, ...]


class Tally:
    """Adds up the rounds of one run, as they come."""

    def __init__(self, kind: I64, names: Sequence[str]) -> None:
        self._kind, self._names = kind, names
        self._asked, self._counted = np.zeros_like(kind), np.zeros_like(kind)
        self._lost = Counter[str]()
        self._bytes = [0, 0]
        self._phase_s: dict[str, float] = {}
        self._energy_j: dict[str, F64] = {}
        self._carbon_kg, self._has_carbon = np.zeros(3), True
        self._rows: list[_Row] = []

    def add(self, record: Round) -> None:
        """One more round."""
        np.add.at(self._asked, list(record.cohort), 1)
        np.add.at(self._counted, list(record.returned), 1)
        self._lost.update(record.lost)
        self._bytes = [self._bytes[0] + record.down_bytes, self._bytes[1] + record.up_bytes]
        for phase, seconds in record.phase_s.items():
            self._phase_s[phase] = self._phase_s.get(phase, 0.0) + seconds * len(record.returned)
        for phase, joules in record.energy_j.items():
            self._energy_j[phase] = self._energy_j.get(phase, np.zeros(3)) + joules
        self._has_carbon &= record.carbon_kg is not None
        self._carbon_kg = self._carbon_kg + (record.carbon_kg or 0.0)
        self._rows.append(_row(record))

    def result(self, *, policy: str, engine: str) -> Simulated:
        """What the rounds so far came to; there is at least one."""
        last, energy_j = self._rows[-1], sum(self._energy_j.values(), start=np.zeros(3))
        p10_s, median_s, p90_s = np.percentile([each.round_s for each in self._rows], (10, 50, 90)).tolist()
        asked, returned = int(self._asked.sum()), int(self._counted.sum())
        return Simulated(
            policy=policy,
            engine=engine,
            rounds=len(self._rows),
            empty_rounds=sum(each.returned == 0 for each in self._rows),
            asked=asked,
            returned=returned,
            lost=dict(self._lost.most_common()),
            lost_share=self._lost.total() / max(asked, 1),
            lost_shares={name: number / max(asked, 1) for name, number in self._lost.most_common()},
            down_bytes=self._bytes[0],
            up_bytes=self._bytes[1],
            end_s=last.end_s,
            round_s=Spread(p10_s=p10_s, median_s=median_s, p90_s=p90_s),
            phase_s={phase: seconds / max(returned, 1) for phase, seconds in self._phase_s.items()},
            energy_j={phase: triple_of(joules) for phase, joules in self._energy_j.items()},
            energy_shares={
                phase: float(joules[1] / energy_j[1]) if energy_j[1] else 0.0
                for phase, joules in self._energy_j.items()
            },
            energy_j_per_update=float(energy_j[1] / returned) if returned else None,
            total_energy_j=triple_of(energy_j),
            carbon_kg=triple_of(self._carbon_kg) if self._has_carbon else None,
            fairness=fairness_of(self._asked, self._counted, self._kind, self._names),
            metrics=last.metrics,
            milestones=tuple(_milestones(self._rows)),
        )

    def course(self) -> Course:
        """The rounds so far one by one."""
        rows = self._rows
        names = dict.fromkeys(name for each in rows for name in each.metrics)
        return Course(
            end_hours=tuple(each.end_s / HOUR_S for each in rows),
            round_s=tuple(each.round_s for each in rows),
            returned=tuple(each.returned for each in rows),
            lost=tuple(each.lost for each in rows),
            sent_gb=tuple(accumulate(each.sent_bytes / GB_BYTES for each in rows)),
            energy_kwh=tuple(accumulate(each.energy_j / KWH_J for each in rows)),
            metrics={name: tuple(each.metrics.get(name) for each in rows) for name in names},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    end_s: float
    round_s: float
    returned: int
    lost: int
    sent_bytes: int
    energy_j: float
    metrics: dict[str, float]


def _milestones(rows: Sequence["_Row"]) -> Iterator[Milestone]:
    """What each accuracy had cost when it was first reached."""
    sent_bytes = list(accumulate(each.sent_bytes for each in rows))
    energy_j = list(accumulate(each.energy_j for each in rows))
    for accuracy in ACCURACIES:
        reached = (at for at, each in enumerate(rows) if each.metrics.get(ACCURACY, 0.0) >= accuracy)
        at = next(reached, None)
        if at is not None:
            yield Milestone(
                accuracy=accuracy,
                rounds=at + 1,
                end_s=rows[at].end_s,
                sent_bytes=sent_bytes[at],
                energy_j=energy_j[at],
            )


def _row(record: Round) -> _Row:
    return _Row(
        end_s=record.start_s + record.round_s,
        round_s=record.round_s,
        returned=len(record.returned),
        lost=sum(record.lost.values()),
        sent_bytes=record.down_bytes + record.up_bytes,
        energy_j=sum(middle for _, middle, _ in record.energy_j.values()),
        metrics=record.metrics,
    )
