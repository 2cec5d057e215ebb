"""A log as a stream of lines or rows: bounded in memory, whatever its size. Knows no format.

What cannot be read is left out and counted by reason, never raised, unless nothing of the file can be read.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from typing import IO, Final

from escala.errors import InvalidInput, one_line
from escala.inputs import LOCKED, UTF8_BOM, UTF16_BOMS, reason

LONGEST_LINE: Final = 2**20
HEAD_BYTES: Final = 2**16
ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
STAMP: Final = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
NUMBER: Final = re.compile(
    r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(nan|inf(inity)?)", re.IGNORECASE | re.ASCII
)
BETWEEN_DIGITS: Final = re.compile(r"\d,(?=\d)")
OTHER_WIDTH: Final = "rows with another number of cells"
COMMA: Final = re.compile(r"[-+]?\d+,\d+")
CUT: Final = "a last line that is cut short"
UNREADABLE: Final = "cells that are no number"
DECIMAL_COMMA: Final = "numbers with a decimal comma: set LC_ALL=C, or the locale of the tool"


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read, and what is left out of it."""

    path: Path
    left_out: Counter[str] = field(default_factory=Counter)

    def leave(self, why: str) -> None:
        """Count one thing that is not read."""
        self.left_out[why] += 1

    def head(self) -> bytes:
        """The first 64 KiB."""
        with self.opened() as file:
            return file.read(HEAD_BYTES)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The bytes of the file; what the system refuses is one clear line."""
        try:
            with self.path.open("rb") as file:
                yield file
        except FileNotFoundError:
            raise InvalidInput(f"{self} does not exist; check the path") from None
        except PermissionError:
            raise InvalidInput(f"{self} {LOCKED}") from None
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{self} cannot be read ({reason(error)}); check the path") from None

    def lines(self) -> Iterator[str]:
        """Lines without colours and line ends; the last one is left out where its line end is missing."""
        for line in self._pieces():
            if line.endswith("\n"):
                yield (ANSI.sub("", line) if "\x1b" in line else line).rstrip("\r\n")
            else:
                self.leave(CUT)

    def rows(self) -> Iterator[list[str]]:
        """Rows of a CSV file that have as many cells as its first; a cut row is left out."""
        width, last = 0, [""]
        try:
            for row in csv.reader(_kept(self._pieces(), last), skipinitialspace=True):
                if row and len(row) == (width := width or len(row)):
                    yield row
                elif row:
                    self.leave(_other_width(len(row) - width, last[0]))
        except csv.Error as error:
            raise InvalidInput(f"{self} is no CSV ({reason(error)}); check the file") from None

    def records(self) -> Iterator[dict[str, str]]:
        """Rows of a CSV file by the names in its first row."""
        rows = self.rows()
        names = [name.strip() for name in next(rows, [])]
        for row in rows:
            yield dict(zip(names, row, strict=True))

    def _pieces(self) -> Iterator[str]:
        """Lines with their ends; of one longer than a MiB nothing is read."""
        with self.opened() as file:
            is_inside = False
            for raw in iter(lambda: file.readline(LONGEST_LINE), b""):
                is_whole = raw.endswith(b"\n") or len(raw) < LONGEST_LINE
                if not is_inside and is_whole:
                    yield self._text(raw)
                elif not is_inside:
                    self.leave("lines longer than 1 MiB")
                is_inside = not is_whole

    @staticmethod
    def _text(raw: bytes) -> str:
        return raw.removeprefix(UTF8_BOM).decode("utf-8", "replace").replace("\0", "")

    def number(self, text: str) -> float | None:
        """A number of a cell; None where the cell is empty or says N/A; NaN is counted, not read."""
        text = text.strip()
        if NUMBER.fullmatch(text):
            return float(text)
        if text and not text.strip("[]").lower().startswith(("n/a", "not ", "unknown", "-", "none")):
            self.leave(DECIMAL_COMMA if COMMA.fullmatch(text) else UNREADABLE)
        return None

    def __str__(self) -> str:
        """The path as it may stand in a message."""
        return one_line(str(self.path))


def _kept(lines: Iterator[str], last: list[str]) -> Iterator[str]:
    """The lines, the last of which stands in a list of one."""
    for line in lines:
        last[0] = line
        yield line


def _other_width(more: int, line: str) -> str:
    """Why a row has so many cells more than the header: each may be the second half of a number."""
    return DECIMAL_COMMA if 0 < more == len(BETWEEN_DIGITS.findall(line)) else OTHER_WIDTH


def text_of(head: bytes, name: object) -> str:
    """The start of a file as text; empty, binary and UTF-16 files are refused."""
    if head.startswith(UTF16_BOMS):
        raise InvalidInput(f"{name} is encoded in UTF-16 (PowerShell's >); save it as UTF-8")
    if not head.strip():
        raise InvalidInput(f"{name} is empty; name the file that the run wrote")
    if b"\0" in head:
        raise InvalidInput(f"{name} is binary, and no TensorBoard event file; name a log")
    return head.removeprefix(UTF8_BOM).decode("utf-8", "replace")


def stamp_s(text: str) -> float | None:
    """Seconds of the first date and time in a text, as if its clock were UTC; None where there is none."""
    found = STAMP.search(text)
    if found is None:
        return None
    try:
        moment = datetime(*(int(part) for part in found.groups()[:6]), tzinfo=UTC)  # type: ignore[arg-type, misc] # six parts
    except ValueError:
        return None
    return moment.timestamp() + float(f"0.{found[7] or 0}")


def whole(text: str) -> int | None:
    """A step number; None where the text is none."""
    text = text.strip()
    return int(float(text)) if NUMBER.fullmatch(text) and 0 <= float(text or nan) < 2**53 else None
