"""A validation as data: what --json prints and the text and the page draw. Scores nothing itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from escala import __version__
from escala.calibration import read_rows
from escala.calibration.leftout import Pair, pair, residuals
from escala.calibration.rows import Fault, Rows
from escala.calibration.samples import Sample
from escala.calibration.scores import DIMENSIONS, OVERALL, Scores, memory_sample, time_sample, worst_of
from escala.calibration.scoring import Prediction
from escala.calibration.validation import Validation, validate
from escala.errors import InvalidInput, unknown
from escala.model.interval import WORDS
from escala.planning.simplicity import describe
from escala.report.operations_view import OperationsView, operations_view
from escala.report.shared import VERDICTS, Interval

VALIDATE_SCHEMA: Final = "escala/validate@1"
SHIPPED: Final = "shipped with escala"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """One row with its prediction; `layout` and `imputed` say how the row was read.

    `error` and `memory_error` are predicted / published - 1; bytes are those of the counter of the source.
    """

    id: str
    source: str
    year: int | None
    model: str
    accelerator: str
    devices: int
    framework: str
    arch: str
    regime: str
    layout: str
    imputed: tuple[str, ...]
    is_trusted: bool
    quantity: str
    published_s: float | None
    predicted_s: Interval
    error: float | None
    is_inside: bool | None
    counter: str
    published_bytes: float | None
    predicted_bytes: float
    memory_error: float | None
    ran_out: bool
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """The document of `escala validate --json`: scores, worst rows, what is not scored, predictions.

    `operations` are single operations and `fit` the errors of time in the fit and left out of it: both of the
    rows that escala ships alone. `skipped` names the rows of one's own table that `skips` counts.
    """

    schema: str
    escala: str
    table: str
    rows: int
    read: int
    scores: Scores
    worst: tuple[RowView, ...]
    skips: dict[str, int]
    skipped: tuple[Fault, ...]
    faults: tuple[Fault, ...]
    ignored_columns: tuple[str, ...]
    missing_columns: tuple[str, ...]
    predictions: tuple[RowView, ...]
    operations: OperationsView | None = None
    fit: Pair | None = None


def validated(name: str | None, worst: int) -> Validated:
    """The table of a name, or the one that escala ships, read, predicted and scored."""
    operations = operations_view() if name is None else None
    return validation_view(validate(_table(name)), SHIPPED if name is None else name, worst, operations)


def validation_view(
    found: Validation, name: str, worst: int, operations: OperationsView | None = None
) -> Validated:
    """A validation as the document, with so many of its worst rows."""
    table = found.table
    return Validated(
        schema=VALIDATE_SCHEMA,
        escala=__version__,
        table=name,
        rows=len(table.rows) + len(table.faults),
        read=len(found.predictions),
        scores=found.scores,
        worst=_views(worst_of(found.predictions, worst)),
        skips=found.reasons,
        skipped=() if name == SHIPPED else found.named_skips,
        faults=table.faults,
        ignored_columns=table.ignored_columns,
        missing_columns=table.missing_columns,
        predictions=_views(found.predictions),
        operations=operations,
        fit=pair(OVERALL, found.predictions, residuals()) if name == SHIPPED else None,
    )


def _table(name: str | None) -> Rows:
    if name is not None and not name.strip():
        raise InvalidInput(
            "no table is named; give a CSV file, or leave it out for the rows that escala ships"
        )
    table = read_rows(None if name is None else Path(name))
    if not table.rows and not table.faults:
        raise InvalidInput(f"{name} has no rows; write one measurement in each line below the columns")
    return table


def dimension(name: str) -> str:
    """A way to group rows, by its name."""
    if name not in DIMENSIONS:
        raise unknown("grouping", name, DIMENSIONS, f"choose {', '.join(DIMENSIONS)}")
    return name


def _views(predictions: Sequence[Prediction]) -> tuple[RowView, ...]:
    return tuple(row_view(each) for each in predictions)


def row_view(given: Prediction) -> RowView:
    """One row with its prediction."""
    reading, row = given.reading, given.reading.row
    time, memory = time_sample(given), memory_sample(given)
    ratio = given.step_ratio
    return RowView(
        id=row.id,
        source=row.source,
        year=row.year,
        model=row.model,
        accelerator=reading.problem.accelerator.name,
        devices=reading.problem.cluster.devices,
        framework=reading.problem.engine.name,
        arch=reading.arch,
        regime=WORDS[reading.regime],
        layout=describe(reading.plan),
        imputed=reading.imputed,
        is_trusted=reading.is_trusted,
        quantity=str(reading.quantity),
        published_s=reading.step_s,
        predicted_s=Interval(value=given.step_s, low=given.step_s / ratio, high=given.step_s * ratio),
        error=_error(time),
        is_inside=None if time is None else time.is_inside,
        counter=str(reading.counter),
        published_bytes=reading.memory_bytes,
        predicted_bytes=given.memory_bytes,
        memory_error=_error(memory),
        ran_out=reading.ran_out,
        verdict=VERDICTS[given.verdict],
    )


def _error(sample: Sample | None) -> float | None:
    return None if sample is None else sample.error
