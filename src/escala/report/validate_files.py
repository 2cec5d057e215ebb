"""A validation as files: the page and the plot. Draws what the document holds, scores nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from escala.calibration.leftout import Pair
from escala.calibration.samples import Errors, Group
from escala.report.calibration_plot import plot, style, svg
from escala.report.numbers import count, in_percent
from escala.report.operations_view import OPERATION_ERRORS, SINGLE, operation_rows
from escala.report.page import figures, page, paragraph, section, table
from escala.report.validate_skips import row_lines
from escala.report.validate_text import (
    ERRORS,
    SWEEPS,
    SWEPT,
    error_cells,
    fit_lines,
    how_read,
    sweep_cells,
    sweep_lines,
    worst_numbers,
)
from escala.report.validate_view import RowView, Validated
from escala.wholefile import write_together

TOLD: Final = (
    "Tables are in percent. Error: predicted / published − 1. MAPE and median are of its size, the bias is "
    "the median with its sign; inside is the share of published numbers that the 80 % interval holds."
)


def save(given: Validated, page_at: str | None = None, plot_at: str | None = None) -> tuple[str, ...]:
    """Write the page with the plot and the tables, and the plot alone, or neither; gives what was written."""
    drawn = ((page_at, page_of), (plot_at, svg))
    texts = {path: draw(given) for path, draw in drawn if path is not None}
    write_together({Path(path): text.encode() for path, text in texts.items()})
    return tuple(texts)


def page_of(given: Validated) -> str:
    """The page that stands alone."""
    return page("escala: predicted against published", style(), _parts(given))


def _parts(given: Validated) -> Iterator[str]:
    scores = given.scores
    yield paragraph(
        f"{count(given.rows)} rows ({given.table}), {count(given.read)} scored; escala {given.escala}"
    )
    if scores.time is not None:
        yield figures((*_sizes(scores.time, given.fit), *_figures(scores.time)))
        yield plot(given)
    sweeps = [] if scores.sweeps is None else sweep_lines(scores.sweeps)
    yield from map(paragraph, (*fit_lines(scores), *sweeps, TOLD))
    for title, groups in (
        ("Step time by regime", scores.time_by["regime"]),
        ("Step time by source", scores.time_by["source"]),
        ("Step time of low-trust rows, by source", scores.low_trust_time_by_source),
        ("Memory by counter", scores.memory_by_counter),
        ("Memory by source", scores.memory_by_source),
    ):
        if groups:
            yield section(title, table(("", *ERRORS, ""), _rows(groups)))
    if scores.sweeps_by_group:
        rows = [(each.name, *sweep_cells(each)) for each in scores.sweeps_by_group]
        yield section("Choice between published layouts", table(("", *SWEEPS), rows), SWEPT)
    if given.operations is not None:
        rows = operation_rows(given.operations.scores.by_operation)
        yield section("Single operations", table(("", *OPERATION_ERRORS), rows), SINGLE)
    if given.worst:
        yield section(
            "Worst rows", table(("row", "published", "predicted", "error, %"), map(_worst, given.worst))
        )
    if given.skips:
        rows = [(reason, count(rows)) for reason, rows in given.skips.items()]
        yield section("Not scored", table(("reason", "rows"), rows))
    for title, named in (("Skipped rows", given.skipped), ("Faulty rows", given.faults)):
        if named:
            yield section(title, "".join(map(paragraph, row_lines(named))))


def _sizes(errors: Errors, fit: Pair | None) -> Iterator[tuple[str, str]]:
    """Mean and median error; of rows that the fit has seen also without their source."""
    if fit is None:
        yield "MAPE", f"{in_percent(errors.mape)} %"
        yield "median error", f"{in_percent(errors.median_absolute_error)} %"
        return
    both = ("in the fit", fit.inside), ("its source left out", fit.left_out)
    for where, each in both:
        yield f"MAPE, {where}", f"{in_percent(each.mape)} %"
    for where, each in both:
        yield f"median error, {where}", f"{in_percent(each.median_absolute_error)} %"


def _figures(errors: Errors) -> Iterator[tuple[str, str]]:
    yield "trusted rows with a time", count(errors.rows)
    yield "bias", f"{in_percent(errors.bias, '+')} %"
    yield "80 % interval holds", f"{in_percent(errors.coverage)} %"
    yield "worst", f"{in_percent(errors.worst.error, '+')} %"


def _rows(groups: Sequence[Group]) -> Iterator[tuple[str, ...]]:
    for each in groups:
        yield each.name, *error_cells(each.errors), f"\n{each.errors.worst.id}"


def _worst(given: RowView) -> tuple[str, ...]:
    return (f"{given.id}\n{' · '.join(how_read(given))}", *worst_numbers(given))
