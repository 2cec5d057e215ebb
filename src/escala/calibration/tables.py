"""Tables of published measurements: CSV to rows. Knows the file format; interprets nothing.

A cell that is not what its column holds makes its row a fault with a reason, never a traceback; unknown
columns are listed and left aside.
"""

import csv
import gzip
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from escala.calibration.rows import COLUMNS, Fault, Row, Rows
from escala.errors import InvalidInput, one_line
from escala.inputs import read_text

MOST_BYTES: Final = 50_000_000
MOST_ROWS: Final = 200_000
MOST_VALUE: Final = 1e15  # no count or rate in a table of runs is larger
_SWITCHES: Final = {"true": True, "false": False, "1": True, "0": False}
_WANTED: Final = {int: "a whole number of at least 0", float: "a number of at least 0", bool: "true or false"}


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
    records = _records(text, name)
    header = [cell.strip() for cell in next(records, (1, []))[1]]
    _check_header(header, name)
    read = [_row(line, header, cells, common_notes or {}) for line, cells in records if any(cells)]
    return Rows(
        rows=tuple(each for each in read if isinstance(each, Row)),
        faults=tuple(each for each in read if isinstance(each, Fault)),
        ignored_columns=tuple(column for column in header if column not in COLUMNS.values()),
        missing_columns=tuple(column for column in COLUMNS.values() if column not in header),
    )


def _check_header(header: Sequence[str], name: str) -> None:
    if not {"source_title", "accelerator"} & set(header):
        raise InvalidInput(
            f"{name} lacks the columns source_title and accelerator; the first line names columns"
        )
    twice = [column for column, count in Counter(header).items() if column and count > 1]
    if twice:
        raise InvalidInput(f"{name} has the column '{one_line(twice[0])}' twice; rename one of them")


def _records(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for number, cells in enumerate(reader):
            if number > MOST_ROWS:
                raise InvalidInput(f"{name} has more than {MOST_ROWS:,} rows; split it")
            yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise InvalidInput(f"{name} is not CSV at line {reader.line_num} ({error}); correct it") from None


def _row(line: int, header: Sequence[str], cells: Sequence[str], common: Mapping[str, str]) -> Row | Fault:
    given = dict(zip(header, cells, strict=False))
    name = one_line(given.get("id") or f"line {line}")
    if len(cells) > len(header):
        return Fault(line=line, id=name, reason=f"{len(cells)} cells under {len(header)} columns")
    texts = {field: given[column] for field, column in COLUMNS.items() if given.get(column)}
    try:
        values: dict[str, Any] = {field: _value(field, text) for field, text in texts.items()}
    except _BadCell as error:
        return Fault(line=line, id=name, reason=str(error))
    values |= {"id": name, "source": values.get("source", "not named")}
    notes = (common.get(values["source"], ""), values.get("notes", ""))
    return Row(**{**values, "notes": "; ".join(note for note in notes if note)})


class _BadCell(Exception):
    """A cell that is not what its column holds."""


def _value(field: str, text: str) -> str | int | float | bool:
    kind = _KINDS[field]
    if kind is str:
        return text
    value = _SWITCHES.get(text.lower()) if kind is bool else _number(text, kind)
    if value is None:
        raise _BadCell(f"{COLUMNS[field]} is '{one_line(text, 30)}', not {_WANTED[kind]}")
    return value


def _number(text: str, kind: type) -> int | float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or not 0 <= number <= MOST_VALUE:
        return None
    if kind is float:
        return number
    return int(number) if number == int(number) else None


def _kind(hint: Any) -> type:
    """The type of a field whose blank is None: int, float, bool; else str."""
    kinds: tuple[type, ...] = get_args(hint) or (hint,)
    return kinds[0]


_KINDS: Final = {name: _kind(hint) for name, hint in get_type_hints(Row).items()}
