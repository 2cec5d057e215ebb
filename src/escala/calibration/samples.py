"""How far predictions are from published numbers: the errors of a set of samples. Knows no source, no model.

Errors, medians and shares are parts of one: 0.05 is 5 %.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from escala.model.columns import F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A published number beside its prediction and the 80 % interval of the prediction, all in one unit."""

    id: str
    configuration: str
    published: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted / published - 1: negative where the prediction is too low."""
        return self.predicted / self.published - 1.0

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the published number, ends included."""
        return self.low <= self.published <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRow:
    """The row with the largest error of either sign."""

    id: str
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of some rows: mean and median size, median with sign, coverage of the interval, worst row.

    By configuration, rows that repeat each other are one vote: the mean of their errors. `interval_ratio` is
    the median of high / predicted: how wide the interval is that has this coverage.
    """

    rows: int
    configurations: int
    mape: float
    median_absolute_error: float
    bias: float
    mape_by_configuration: float
    median_by_configuration: float
    coverage: float
    interval_ratio: float
    worst: WorstRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The errors of the rows that have one name in a dimension."""

    name: str
    errors: Errors


def errors_of(samples: Sequence[Sample]) -> Errors | None:
    """The errors of samples; None where there is no sample."""
    if not samples:
        return None
    samples = sorted(samples, key=lambda each: each.error)  # so that sums are the same in any order of rows
    errors = np.array([each.error for each in samples])
    votes = _votes([each.configuration for each in samples], errors)
    worst = max(samples, key=lambda each: (abs(each.error), each.error, each.id))
    return Errors(
        rows=len(errors),
        configurations=len(votes),
        mape=mean_size(errors),
        median_absolute_error=median_size(errors),
        bias=float(np.median(errors)),
        mape_by_configuration=mean_size(votes),
        median_by_configuration=median_size(votes),
        coverage=float(np.mean([each.is_inside for each in samples])),
        interval_ratio=float(np.median([each.high / each.predicted for each in samples])),
        worst=WorstRow(id=worst.id, error=worst.error),
    )


def mean_size(errors: F64) -> float:
    """MAPE: the mean of |error|."""
    return float(np.mean(np.abs(errors)))


def mape_together(a: Errors, b: Errors) -> float:
    """The mean of |error| of two sets as one."""
    return (a.rows * a.mape + b.rows * b.mape) / (a.rows + b.rows)


def median_size(errors: F64) -> float:
    """The median of |error|."""
    return float(np.median(np.abs(errors)))


def _votes(configurations: Sequence[str], errors: F64) -> F64:
    """One error for each configuration: the mean error of its rows."""
    _, where = np.unique(configurations, return_inverse=True)
    return np.bincount(where, errors) / np.bincount(where)


def groups_of(named: Iterable[tuple[str, Sample]]) -> tuple[Group, ...]:
    """The errors of samples by name, the name with most rows first."""
    alike: defaultdict[str, list[Sample]] = defaultdict(list)
    for name, sample in named:
        alike[name].append(sample)
    found = ((name, errors_of(samples)) for name, samples in alike.items())
    groups = [Group(name=name, errors=errors) for name, errors in found if errors is not None]
    return tuple(sorted(groups, key=lambda each: (-each.errors.rows, each.name)))
