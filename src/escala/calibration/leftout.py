"""What predictions are worth for software that the fit has not seen: each source left out of it in turn.

The errors are those that scripts/fit wrote to data/residuals.csv. Statistics only: fits and predicts nothing.
"""

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np

from escala.calibration.fitting import FEWEST_ROWS
from escala.calibration.reading import Reading
from escala.calibration.samples import Errors, Sample, errors_of
from escala.calibration.scores import Named, time_sample
from escala.calibration.scoring import Prediction
from escala.calibration.widths import assumed_width, ratio_that_covers, widened
from escala.model.columns import F64, Bool
from escala.model.interval import interval_ratio

CHANGED: Final = 0.01  # of a logarithm, from which a prediction is no longer that of the fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Logarithm of predicted / published seconds of one row: in the fit, and with its source left out."""

    inside: float
    left_out: float


Residuals = Mapping[str, Residual]


@cache
def residuals() -> Residuals:
    """The errors of the last fit by row."""
    text = (files("escala.calibration") / "data" / "residuals.csv").read_text(encoding="utf-8")
    return {
        row["id"]: Residual(inside=float(row["log_error"]), left_out=float(row["left_out_log_error"]))
        for row in csv.DictReader(text.splitlines())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One set of trusted rows scored twice: in the fit, and with the source of each row left out."""

    name: str
    inside: Errors
    left_out: Errors


def scored_rows(predictions: Iterable[Prediction], known: Residuals) -> list[Prediction]:
    """Trusted rows with a step time that the fit has seen."""
    return [
        each
        for each in predictions
        if each.reading.is_trusted and each.reading.step_s is not None and each.reading.row.id in known
    ]


def left_out_sample(given: Prediction, residual: Residual) -> Sample:
    """The row as predicted without its source, in the interval of an engine that no run calibrated."""
    reading = given.reading
    assert reading.step_s is not None
    predicted, ratio = reading.step_s * math.exp(residual.left_out), new_engine_ratio(reading)
    return Sample(
        id=reading.row.id,
        configuration=reading.configuration,
        published=reading.step_s,
        predicted=predicted,
        low=predicted / ratio,
        high=predicted * ratio,
    )


def new_engine_ratio(reading: Reading) -> float:
    """The factor of the 80 % interval if no published run had calibrated the engine of the row."""
    problem = replace(reading.problem, engine=replace(reading.problem.engine, is_calibrated=False))
    ratio = interval_ratio(problem, np.array([int(reading.regime)]))
    return widened(float(ratio[0]), reading.imputed)


def pair(name: str, predictions: Iterable[Prediction], known: Residuals) -> Pair | None:
    """Rows scored in the fit and left out; None where the fit has seen none of them."""
    rows = scored_rows(predictions, known)
    inside = errors_of([sample for sample in map(time_sample, rows) if sample])
    left_out = errors_of([left_out_sample(each, known[each.reading.row.id]) for each in rows])
    return Pair(name=name, inside=inside, left_out=left_out) if inside and left_out else None


def pairs_by(named: Named, predictions: Iterable[Prediction], known: Residuals) -> tuple[Pair, ...]:
    """Rows by a name, scored in the fit and left out, the name with most rows first."""
    alike: dict[str, list[Prediction]] = {}
    for each in predictions:
        alike.setdefault(named(each.reading), []).append(each)
    found = [pair(name, rows, known) for name, rows in alike.items()]
    return tuple(sorted((each for each in found if each), key=lambda each: (-each.inside.rows, each.name)))


def source_mean(pairs: Sequence[Pair], figure: Callable[[Errors], float]) -> tuple[float, float]:
    """A figure where every set is one vote, in the fit and left out."""
    inside, left_out = ([figure(errors) for errors in side] for side in _sides(pairs))
    return float(np.mean(inside)), float(np.mean(left_out))


def _sides(pairs: Sequence[Pair]) -> tuple[list[Errors], list[Errors]]:
    return [each.inside for each in pairs], [each.left_out for each in pairs]


def unseen_inside(predictions: Sequence[Prediction], known: Residuals) -> Bool:
    """Whether each scored row lies in an interval whose width its own source had no part in.

    The width of a regime is set by the left-out errors of all other sources, as the fit sets it by all.
    """
    rows = scored_rows(predictions, known)
    readings = [each.reading for each in rows]
    errors = np.array([known[each.row.id].left_out for each in readings])
    groups, kinds = np.array([r.group for r in readings]), np.array([int(r.regime) for r in readings])
    inside = np.zeros(len(rows), np.bool_)
    for group in sorted(set(groups.tolist())):
        for kind in {int(k) for k in kinds[groups == group]}:
            width = math.log(_ratio_of_others(errors, readings, groups != group, kinds == kind))
            for i in np.flatnonzero((groups == group) & (kinds == kind)):
                inside[i] = abs(errors[i]) <= math.hypot(width, assumed_width(readings[i].imputed))
    return inside


def _ratio_of_others(errors: F64, readings: Sequence[Reading], others: Bool, alike: Bool) -> float:
    """The factor that covers 80 % of other sources' rows: those of the regime, or all where it has few."""
    chosen = others & alike if (others & alike).sum() >= FEWEST_ROWS else others
    return ratio_that_covers(errors[chosen], [readings[i] for i in np.flatnonzero(chosen).tolist()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Share of rows that 80 % intervals hold: in the fit, left out, and left out with unseen widths."""

    name: str
    rows: int
    inside: float
    left_out: float
    unseen: float


def coverages(named: Named, predictions: Sequence[Prediction], known: Residuals) -> tuple[Coverage, ...]:
    """Coverage of the rows of each name, the name with most rows first."""
    rows, unseen = scored_rows(predictions, known), unseen_inside(predictions, known)
    names = np.array([named(each.reading) for each in rows])
    found = []
    for each in pairs_by(named, rows, known):
        found.append(
            Coverage(
                name=each.name,
                rows=each.inside.rows,
                inside=each.inside.coverage,
                left_out=each.left_out.coverage,
                unseen=float(unseen[names == each.name].mean()),
            )
        )
    return tuple(found)


def mean_coverage(predictions: Sequence[Prediction], known: Residuals) -> Coverage:
    """Coverage where every source group is one vote."""
    each = coverages(lambda reading: reading.group, predictions, known)
    return Coverage(
        name="groups",
        rows=len(each),
        inside=float(np.mean([group.inside for group in each])),
        left_out=float(np.mean([group.left_out for group in each])),
        unseen=float(np.mean([group.unseen for group in each])),
    )


def changed_rows(predictions: Iterable[Prediction], known: Residuals) -> int:
    """How many rows are predicted more than 1 % away from what the last fit predicted: 0 after a fit."""
    rows = scored_rows(predictions, known)
    now = [math.log(each.step_s / (each.reading.step_s or 1.0)) for each in rows]
    then = [known[each.reading.row.id].inside for each in rows]
    return sum(abs(a - b) > CHANGED for a, b in zip(now, then, strict=True))
