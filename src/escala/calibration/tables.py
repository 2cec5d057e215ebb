"""Tables of published measurements: CSV to rows. Knows the file format; interprets nothing.

A cell that is not what its column holds makes its row a fault with a reason, never a traceback; unknown
columns are listed and left aside.
"""

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from escala.calibration.cells import BadCell, value_of
from escala.calibration.rows import COLUMNS, Fault, Row, Rows
from escala.errors import InvalidInput, one_line
from escala.inputs import read_text

MOST_BYTES: Final = 50_000_000
MOST_ROWS: Final = 200_000
_NEEDED: Final = frozenset({"source_title", "accelerator"})  # one of them
_SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs"}


def read_rows(path: Path | None = None) -> Rows:
    """The published measurements that escala ships, or those of a CSV file with the same columns."""
    if path is None:
        return _shipped()
    return parse_rows(read_text(path, MOST_BYTES, "split it"), str(path))


@cache
def _shipped() -> Rows:
    data = files("escala.calibration") / "data"
    notes = csv.DictReader(io.StringIO((data / "sources.csv").read_text(encoding="utf-8")))
    common = {source["source_title"]: source["notes"] for source in notes}
    archive = (data / "rows.csv.gz").read_bytes()
    return parse_rows(gzip.decompress(archive).decode("utf-8"), "rows.csv.gz", common)


def parse_rows(text: str, name: str, common_notes: Mapping[str, str] | None = None) -> Rows:
    """Rows of CSV text; `common_notes` are notes that hold for every row of a source."""
    _check_separator(text, name)
    records = _records(text, name)
    header = [cell.strip() for cell in next(records, (1, []))[1]]
    _check_header(header, name)
    filled = [(line, cells) for line, cells in records if any(cells)]
    read = [_row(line, header, cells, common_notes or {}) for line, cells in filled]
    return Rows(
        rows=tuple(each for each in read if isinstance(each, Row)),
        lines=tuple(line for (line, _), each in zip(filled, read, strict=True) if isinstance(each, Row)),
        faults=tuple(each for each in read if isinstance(each, Fault)),
        ignored_columns=tuple(column for column in header if column not in COLUMNS.values()),
        missing_columns=tuple(column for column in COLUMNS.values() if column not in header),
    )


def _check_separator(text: str, name: str) -> None:
    """Columns that only another separator than the comma tells apart are refused by its name."""
    first = (re.match(r"[^\r\n]*", text) or [""])[0]
    known = {
        mark: sum(cell.strip(' "') in COLUMNS.values() for cell in first.split(mark)) for mark in _SEPARATORS
    }
    best = max(known, key=lambda mark: known[mark])
    if best != ",":
        raise InvalidInput(f"{name} has {_SEPARATORS[best]} between its columns; save it with commas")


def _check_header(header: Sequence[str], name: str) -> None:
    if not _NEEDED & set(header):
        raise InvalidInput(
            f"{name} lacks the columns source_title and accelerator, of which one suffices; "
            "the first line names columns"
        )
    twice = [column for column, count in Counter(header).items() if column and count > 1]
    if twice:
        raise InvalidInput(f"{name} has the column '{one_line(twice[0])}' twice; rename one of them")


def _records(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record with the line where it begins."""
    reader, begin = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    try:
        for number, cells in enumerate(reader):
            if number > MOST_ROWS:
                raise InvalidInput(f"{name} has more than {MOST_ROWS:,} rows; split it")
            yield begin, [cell.strip() for cell in cells]
            begin = reader.line_num + 1
    except csv.Error as error:
        raise InvalidInput(f"{name} is not CSV: {_broken(str(error), begin, reader.line_num)}") from None


def _broken(said: str, begin: int, end: int) -> str:
    """What breaks a record from one line to another, in words of the table."""
    if "unexpected end" in said:
        return f"line {begin}: a quote is opened and never closed"
    if "expected after" in said:
        where = "" if begin == end else f" on line {end}"
        return (
            f'line {begin}: a quote is opened and closed{where} amid a cell; write "" for a quote in quotes'
        )
    if begin < end:
        return f"line {begin}: a quote is opened and not closed for {csv.field_size_limit():,} letters"
    return f"line {begin}: {one_line(said)}; correct it"


def _row(line: int, header: Sequence[str], cells: Sequence[str], common: Mapping[str, str]) -> Row | Fault:
    given = dict(zip(header, cells, strict=False))
    name = one_line(given.get("id") or f"line {line}")
    if len(cells) > len(header):
        return Fault(line=line, id=name, reason=f"{len(cells)} cells under {len(header)} columns")
    texts = {field: given[column] for field, column in COLUMNS.items() if given.get(column)}
    try:
        values: dict[str, Any] = {field: value_of(field, text) for field, text in texts.items()}
    except BadCell as error:
        return Fault(line=line, id=name, reason=str(error))
    values |= {"id": name, "source": values.get("source", "not named")}
    notes = (common.get(values["source"], ""), values.get("notes", ""))
    return Row(**{**values, "notes": "; ".join(note for note in notes if note)})
