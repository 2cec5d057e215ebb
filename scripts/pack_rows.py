"""Makes the compact data in src/escala/calibration/data from CSV files of published measurements.

Notes that all rows of a source share go to sources.csv once; notes about how a column was filled are dropped.
The archive is byte for byte the same for the same input, so that its hash names the data.
"""

import argparse
import csv
import gzip
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DATA = Path(__file__).parents[1] / "src" / "escala" / "calibration" / "data"
TITLE, ADDRESS, NOTES = "source_title", "source_url_or_repo_path", "notes"
# how the table was filled, not how it is to be read
DROPPED = re.compile(r"arch from config|\bstored\b|not re-read|no prose")
COPY = re.compile(r" ?[(;][^()]*\bstored (?:file|copy)\b[^()]*\)")
GEMM_SOURCE = "stas00/ml-engineering, accelerator chapter: maximum achievable matrix products"
LIMITS_SOURCE = "Zeus (You et al., NSDI 2023): traces under power limits, medians over configurations"

Table = list[dict[str, str]]


def main() -> None:
    """Read what the command line names, write the four tables."""
    given = _arguments()
    rows = [row for file in given.rows for row in _read(file)]
    common = _common_notes(rows)
    _write_archive("rows.csv.gz", [_packed(row, common[row[TITLE]]) for row in rows])
    _write("sources.csv", [{TITLE: title, NOTES: "; ".join(notes)} for title, notes in common.items()])
    if given.collectives:
        _write("collectives.csv", _read(given.collectives))
    if given.gemm:
        _write("gemm.csv", [row | {"source": GEMM_SOURCE} for row in _read(given.gemm)])
    if given.power:
        _write("power.csv", _read(given.power))
    if given.limits:
        _write("power_limits.csv", [row | {"source": LIMITS_SOURCE} for row in _read(given.limits)])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="+", type=Path, help="tables of training measurements")
    for name in ("collectives", "gemm", "power", "limits"):
        parser.add_argument(f"--{name}", type=Path)
    return parser.parse_args()


def _read(file: Path) -> Table:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _segments(row: dict[str, str]) -> list[str]:
    found = (segment.strip() for segment in row[NOTES].split(";"))
    return [segment for segment in found if segment and not DROPPED.search(segment)]


def _common_notes(rows: Table) -> dict[str, list[str]]:
    """Notes by source that every row of it carries, in their order."""
    common: dict[str, list[str]] = {}
    for row in rows:
        segments = _segments(row)
        common[row[TITLE]] = [each for each in common.get(row[TITLE], segments) if each in segments]
    return common


def _packed(row: dict[str, str], common: Sequence[str]) -> dict[str, str]:
    own = [segment for segment in _segments(row) if segment not in common]
    return row | {NOTES: "; ".join(own), ADDRESS: COPY.sub("", row[ADDRESS])}


def _text(rows: Table) -> str:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    kept = [column for column in columns if any(row.get(column) for row in rows)]
    lines = io.StringIO()
    writer = csv.DictWriter(lines, kept, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return lines.getvalue()


def _write(name: str, rows: Iterable[dict[str, str]]) -> None:
    (DATA / name).write_text(_text(list(rows)), encoding="utf-8")


def _write_archive(name: str, rows: Table) -> None:
    (DATA / name).write_bytes(gzip.compress(_text(rows).encode(), mtime=0))


if __name__ == "__main__":
    main()
