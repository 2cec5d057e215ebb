"""Single operations of a validation as data and as lines: what --json holds, the text and the page show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from escala.calibration.operation_scores import (
    OperationErrors,
    OperationGroup,
    Operations,
    OperationScores,
    validate_operations,
)
from escala.calibration.operations import Operation
from escala.report.numbers import count, in_percent, plural

OPERATION_ERRORS: Final = ("rows", "MAPE", "median", "bias", "worst")
SINGLE: Final = (
    "Published measurements of one operation alone: collectives, the best of many products of matrices (an "
    "upper bound of those in training), power"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """One measurement of a single operation beside what the model says for it."""

    id: str
    operation: str
    of: str
    size: str
    unit: str
    published: float
    predicted: float
    unfitted: float | None
    error: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsView:
    """Measurements of single operations that escala ships: scores, what is not scored, all that are."""

    rows: int
    read: int
    scores: OperationScores
    skips: dict[str, int]
    measurements: tuple[OperationView, ...]


def operations_view(given: Operations | None = None) -> OperationsView:
    """The shipped measurements of single operations, read, predicted and scored."""
    found = validate_operations() if given is None else given
    return OperationsView(
        rows=len(found.operations) + len(found.skips),
        read=len(found.operations),
        scores=found.scores,
        skips=found.reasons,
        measurements=tuple(map(_view, found.operations)),
    )


def _view(given: Operation) -> OperationView:
    return OperationView(
        id=given.id,
        operation=given.operation,
        of=given.of,
        size=given.size,
        unit=given.unit,
        published=given.published,
        predicted=given.predicted,
        unfitted=given.unfitted,
        error=given.error,
        source=given.source,
    )


def operation_lines(given: OperationScores) -> list[str]:
    """Collectives, their size classes and best products of matrices, a line each."""
    lines = []
    if given.collectives is not None:
        rows = given.collectives.rows
        lines.append(f"{count(rows)} collective{plural(rows)} · {_errors(given.collectives)}")
        lines.append(" · ".join(f"{each.name}: {in_percent(each.errors.mape)} %" for each in given.by_size))
    if given.products is not None and given.unfitted is not None:
        rows, before = given.products.rows, in_percent(given.unfitted.bias, "+")
        lines.append(
            f"{count(rows)} best product{plural(rows)} of matrices · {_errors(given.products)}"
            f" · before the fit {before} %"
        )
    return lines


def _errors(given: OperationErrors) -> str:
    return f"MAPE {in_percent(given.mape)} % · bias {in_percent(given.bias, '+')} %"


def operation_rows(groups: Sequence[OperationGroup]) -> list[tuple[str, ...]]:
    """Groups under the columns of OPERATION_ERRORS, in percent, the worst measurement below its error."""
    return [(each.name, *_cells(each.errors)) for each in groups]


def _cells(given: OperationErrors) -> tuple[str, ...]:
    return (
        count(given.rows),
        in_percent(given.mape),
        in_percent(given.median_absolute_error),
        in_percent(given.bias, "+"),
        f"{in_percent(given.worst.error, '+')}\n{given.worst.id}",
    )
