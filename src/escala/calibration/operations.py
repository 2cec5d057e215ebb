"""Published measurements of single operations: their tables, and what a row becomes. Predicts nothing itself.

Whole runs hide much of their communication, mix products of all sizes and print no power state; these tables
are the only evidence for such terms.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from escala.calibration.cells import MOST_VALUE
from escala.calibration.failure import Unreadable
from escala.catalog.accelerators import accelerator_entries
from escala.catalog.loader import find

Cells = Mapping[str, str]

NO_NUMBER: Final = "no number printed"
NO_DEVICE: Final = "device not in the catalog"
_ASIDE: Final = re.compile(r"\(.*|\b\d+\s*W\b|/\S+")  # remarks, a printed limit, the second of two devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One measurement of a single operation beside what the model says for it, both in `unit`.

    `of` is the outermost link that a collective crosses, else the device. `size` is the size class of a
    collective, "" elsewhere. `unfitted` is the prediction without the fit, None where no fit takes part.
    """

    id: str
    operation: str
    of: str
    size: str = ""
    unit: str
    published: float
    predicted: float
    unfitted: float | None = None
    source: str

    @property
    def error(self) -> float:
        """Predicted / published - 1: negative where the prediction is too low."""
        return self.predicted / self.published - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSkip:
    """A row that cannot be scored, and why."""

    id: str
    reason: str


Reader = Callable[[str, Cells], Operation]


@cache
def shipped(name: str) -> tuple[Cells, ...]:
    """The rows of a small table that escala ships, as text."""
    text = (files("escala.calibration") / "data" / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(io.StringIO(text)))


def read_each(name: str, rows: Sequence[Cells], reader: Reader) -> list[Operation | OperationSkip]:
    """Every row of a table as a measurement or as a skip; ids are the table and the line in its file."""
    return [_one(f"{name}:{line}", row, reader) for line, row in enumerate(rows, 2)]


def _one(name: str, row: Cells, reader: Reader) -> Operation | OperationSkip:
    try:
        return reader(name, row)
    except Unreadable as reason:
        return OperationSkip(id=name, reason=str(reason))


def text(row: Cells, column: str) -> str:
    """A cell without the space around it; "" where the table lacks it."""
    return (row.get(column) or "").strip()


def number(cell: str) -> float | None:
    """A number above 0 that a measurement can have; None for anything else."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and 1 / MOST_VALUE <= value <= MOST_VALUE else None


def needed(cell: str) -> float:
    """A number above 0, or the row cannot be scored."""
    value = number(cell)
    if value is None:
        raise Unreadable(NO_NUMBER)
    return value


def device_of(printed: str) -> str:
    """The catalog's name of a device that stands alone in a cell, remarks aside; of two devices the first."""
    known = accelerator_entries()
    found = find(printed, known) or find(_ASIDE.sub("", printed).strip(), known)
    if found is None:
        raise Unreadable(NO_DEVICE)
    return found
