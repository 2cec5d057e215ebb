"""Rows of a table that are not scored, for people: counted by reason, the first by line; and odd columns."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.calibration.rows import Fault
from escala.errors import one_line
from escala.report.layout import QUIET, Chunk, add_row, flow, hanging, put_table, room, table_of
from escala.report.numbers import count
from escala.report.validate_view import Validated

MOST_FAULTS: Final = 10


def print_skips(console: Console, given: Validated) -> None:
    """Rows that are not scored by reason, faulty lines, and columns that are not used or missing."""
    table = table_of(console, (("not scored", "text"), ("rows", "right")))
    for reason, rows in given.skips.items():
        add_row(table, reason, count(rows))
    if given.skips:
        put_table(console, table)
    said(console, "Skipped", row_lines(given.skipped))
    said(console, "Faulty", row_lines(given.faults))
    _columns(console, "Unused", given.ignored_columns)
    _columns(console, "Absent", given.missing_columns)


def row_lines(rows: Sequence[Fault]) -> list[str]:
    """The first rows that cannot be read, with line, id and reason, and how many there are."""
    lines = [f"{_where(each)}: {each.reason}" for each in rows[:MOST_FAULTS]]
    return [*lines, f"and more, {count(len(rows))} in all"] if len(rows) > MOST_FAULTS else lines


def _where(row: Fault) -> str:
    line = f"line {count(row.line)}"
    return line if row.id == f"line {row.line}" else f"{line}, {row.id}"


def _columns(console: Console, label: str, names: Sequence[str]) -> None:
    chunks: list[Chunk] = [Text(one_line(name), style=QUIET) for name in names]
    hanging(console, label, flow(chunks, room(console), ", "))


def said(console: Console, label: str, lines: Sequence[str]) -> None:
    """A label with lines that each fold on their own."""
    hanging(console, label, [part for line in lines for part in flow(line.split(" · "), room(console))])
