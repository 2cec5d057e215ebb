"""Rows that a fit learns from: which, what each weighs, and how predictions move with the free numbers."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from escala.calibration.reading import Reading
from escala.calibration.scoring import batches
from escala.model.columns import F64, I64
from escala.model.estimate import time_of
from escala.model.interval import Regime
from escala.model.plan import Plans
from escala.model.problem import Problem

# A source counts as at most so many rows; noisy kinds of rows and rows with assumed fields count less.
MOST_ROWS: Final = 60.0
EXPERTS_WEIGHT: Final = 0.5
SLOW_WEIGHT: Final = 0.3
IMPUTED_WEIGHT: Final = 0.6
# Fields whose absence says little about the step.
_HARMLESS: Final = frozenset({"link", "device memory"})
STEP: Final = 0.02  # of a logarithm, for differences


class FreeNumber(Protocol):
    """A number that a fit may move: the logarithm of a factor on a field of the problem."""

    def touches(self, problem: Problem) -> bool:
        """Whether the problem has the number."""

    def on(self, problem: Problem, logarithm: float) -> Problem:
        """The problem with the number at exp(logarithm) times its value without the fit."""


class Observed(Protocol):
    """Measured times in batches that ask the same question, and what each weighs."""

    @property
    def batches(self) -> Sequence[I64]:
        """Positions of the rows of each batch."""

    @property
    def problems(self) -> Sequence[Problem]:
        """The question of each batch."""

    @property
    def log_published(self) -> F64:
        """Logarithm of the measured seconds of each row."""

    @property
    def weights(self) -> F64:
        """What each row counts."""

    def __len__(self) -> int:
        """Number of rows."""

    def log_seconds(self, batch: int, problem: Problem) -> F64:
        """Logarithm of the seconds that are predicted for the rows of a batch, if this were its question."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Trusted rows with a step time, in batches that ask the same question, and their weights."""

    readings: tuple[Reading, ...]
    batches: tuple[I64, ...]
    problems: tuple[Problem, ...]
    plans: tuple[Plans, ...]
    log_published: F64
    weights: F64

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> "Sample":
        """The rows to learn from among readings."""
        rows = tuple(r for r in readings if r.step_s is not None and r.is_trusted)
        where = tuple(np.array(batch, np.int64) for batch in batches(rows))
        return cls(
            readings=rows,
            batches=where,
            problems=tuple(rows[batch[0]].problem for batch in where),
            plans=tuple(Plans.of([rows[i].plan for i in batch]) for batch in where),
            log_published=np.log([r.step_s or 1.0 for r in rows]),
            weights=weights(rows),
        )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.readings)

    def log_seconds(self, batch: int, problem: Problem) -> F64:
        """Logarithm of the predicted step times of a batch, if this were its question."""
        return np.asarray(np.log(time_of(problem, self.plans[batch]).step_s), np.float64)

    @property
    def groups(self) -> NDArray[np.str_]:
        """The source group of every row."""
        return np.array([r.group for r in self.readings])


def weights(readings: Sequence[Reading]) -> F64:
    """What each row counts: repeats of a configuration share one vote, a source has at most 60."""
    repeats = Counter(r.configuration for r in readings)
    each = np.array([_weight(r) / repeats[r.configuration] for r in readings], np.float64)
    groups = np.array([r.group for r in readings])
    for group in set(groups.tolist()):
        total = each[groups == group].sum()
        each[groups == group] *= min(1.0, MOST_ROWS / total) if total else 1.0
    return each


def _weight(reading: Reading) -> float:
    assumed = IMPUTED_WEIGHT if set(reading.imputed) - _HARMLESS else 1.0
    return assumed * regime_weight(reading.regime)


def regime_weight(kind: Regime) -> float:
    """What a run of a regime counts: less where published runs scatter most."""
    return {Regime.EXPERTS: EXPERTS_WEIGHT, Regime.SLOW: SLOW_WEIGHT}.get(kind, 1.0)


def log_step(
    sample: Observed, free: Sequence[FreeNumber], values: F64, which: Sequence[int] | None = None
) -> dict[int, F64]:
    """Logarithm of predicted seconds of the given batches (all when none are given), with these values."""
    chosen = range(len(sample.batches)) if which is None else which
    return {k: sample.log_seconds(k, moved(sample.problems[k], free, values)) for k in chosen}


def moved(problem: Problem, free: Sequence[FreeNumber], values: F64) -> Problem:
    """The problem with every number that it has at its value, the logarithm of a factor."""
    for parameter, value in zip(free, values, strict=True):
        if parameter.touches(problem):
            problem = parameter.on(problem, float(value))
    return problem


def predicted(sample: Observed, free: Sequence[FreeNumber], values: F64) -> F64:
    """Logarithm of predicted seconds of every row."""
    result = np.empty(len(sample))
    for k, found in log_step(sample, free, values).items():
        result[sample.batches[k]] = found
    return result


def slopes(
    sample: Observed,
    free: Sequence[FreeNumber],
    values: F64,
    base: F64,
    progress: Callable[[float], None],
) -> F64:
    """Change of each row's logarithm for each free number: (rows, parameters), by differences."""
    result = np.zeros((len(sample), len(free)))
    for j, parameter in enumerate(free):
        which = [k for k, problem in enumerate(sample.problems) if parameter.touches(problem)]
        moved = values.copy()
        moved[j] += STEP
        for k, found in log_step(sample, free, moved, which).items():
            rows = sample.batches[k]
            result[rows, j] = (found - base[rows]) / STEP
        progress((j + 1) / len(free))
    return result
