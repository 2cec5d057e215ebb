"""The rows that escala ships, predicted once for all pages, and how pages write counts and shares."""

from functools import cache

from docs_tables import GLUE

from escala.calibration import read_rows
from escala.calibration.reading import Reading
from escala.calibration.validation import Validation, validate


@cache
def found() -> Validation:
    """The rows that escala ships, predicted and scored."""
    return validate(read_rows())


@cache
def readings() -> tuple[Reading, ...]:
    """All rows that can be read."""
    return tuple(each.reading for each in found().predictions)


def whole_percent(value: float) -> str:
    """A share without decimals."""
    return f"{value:.0%}".replace("%", f"{GLUE}%")


def count(value: int) -> str:
    """A number of rows."""
    return f"{value:,}"
