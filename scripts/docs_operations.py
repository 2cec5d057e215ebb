"""Sections of docs/accuracy.md about single operations: collectives, products, power. Formats only."""

from collections.abc import Callable, Sequence
from functools import cache

from docs_rows import count
from docs_tables import percent, share, table

from escala.calibration.operation_scores import (
    OperationErrors,
    OperationGroup,
    Operations,
    validate_operations,
)

HEAD = ("rows", "mean", "median", "bias", "worst")


@cache
def found() -> Operations:
    """The shipped measurements of single operations, predicted and scored."""
    return validate_operations()


def operation_table() -> str:
    """Errors by operation."""
    return _table("operation", found().scores.by_operation)


def link_table() -> str:
    """Errors of collectives by size of the message, then by link and size."""
    scores = found().scores
    return _table("collectives", scores.by_size) + "\n" + _table("link, message", scores.by_link)


def product_line() -> str:
    """Best products before and after the fit, and how many are below the model's share."""
    scores = found().scores
    after, before = scores.products, scores.unfitted
    assert after is not None
    assert before is not None
    above = sum(each.unfitted is not None and each.error > 0 for each in found().operations)
    return (
        f"Best products: the model's share is {percent(after.bias)} from the best on the median, and was"
        f" {percent(before.bias)} before the fit; it is above the best in {above} of {after.rows}.\n"
    )


def operation_skips() -> str:
    """Why rows are not scored."""
    return table(("reason", "rows"), [(reason, count(rows)) for reason, rows in found().reasons.items()])


def _table(name: str, groups: Sequence[OperationGroup]) -> str:
    return table((name, *HEAD), [(each.name, *_figures(each.errors)) for each in groups])


def _figures(given: OperationErrors) -> tuple[str, ...]:
    worst = f"{percent(given.worst.error)} ({given.worst.id})"
    sizes = share(given.mape), share(given.median_absolute_error), percent(given.bias)
    return count(given.rows), *sizes, worst


OPERATION_SECTIONS: dict[str, Callable[[], str]] = {
    "operations": operation_table,
    "operations_by_link": link_table,
    "operation_products": product_line,
    "operation_skips": operation_skips,
}
