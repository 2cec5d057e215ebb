"""Cells of a table of runs as values: whole numbers, numbers, switches. Knows no file.

A cell that is not what its column holds is a BadCell whose text says what stands there and what to write.
"""

import re
from typing import Any, Final, get_args, get_type_hints

from escala.calibration.rows import COLUMNS, Row
from escala.errors import one_line

MOST_VALUE: Final = 1e15  # no count or rate in a table of runs is larger
LEAST_VALUE: Final = 1e-15  # nor smaller, but for 0
_SWITCHES: Final = {"true": True, "false": False, "1": True, "0": False}
_WANTED: Final = {int: "a whole number of at least 0", float: "a number of at least 0", bool: "true or false"}
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_THOUSANDS: Final = re.compile(r"(\d{1,3}),(\d{3})", re.ASCII)
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+(?:\.\d{3})*,\d+", re.ASCII)
_GROUPED: Final = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
DEGREES: Final = ("dp", "tp", "pp", "vp", "cp", "ep")
SPEEDS: Final = (
    *("step_s", "tokens_per_s", "device_tokens_per_s", "samples_per_s"),
    *("device_tflop_per_s", "mfu_percent", "hfu_percent"),
)
# Why a field is no 0; without its reason a 0 would be read as a blank.
_NO_ZERO: Final = {
    **dict.fromkeys(DEGREES, "a degree of 0; write 1 or leave it blank"),
    **dict.fromkeys(SPEEDS, "a speed of 0; leave it blank where none was measured"),
}


class BadCell(Exception):
    """A cell that is not what its column holds."""


def value_of(field: str, text: str) -> str | int | float | bool:
    """The value of a cell that is not blank, by the type of its field."""
    kind = KINDS[field]
    if kind is str:
        return text
    value = _SWITCHES.get(text.lower()) if kind is bool else _number(field, text, kind)
    if value is None:
        raise _bad(field, text, f"not {_WANTED[kind]}")
    if kind is not bool and value == 0 and field in _NO_ZERO:
        raise _bad(field, text, _NO_ZERO[field])
    return value


def _bad(field: str, text: str, why: str) -> BadCell:
    return BadCell(f"{COLUMNS[field]} is '{one_line(text, 30)}', {why}")


def _number(field: str, text: str, kind: type) -> int | float | None:
    """The number of plain digits; None where the text is none of that kind."""
    if not _NUMBER.fullmatch(text):
        _refuse_comma(field, text)
        return None
    number = float(text)
    _refuse_size(field, text, number)
    if number < 0 or (kind is int and number != int(number)):
        return None
    return number if kind is float else int(number)


def _refuse_size(field: str, text: str, number: float) -> None:
    """Numbers of no run are refused, also those that a float rounds to infinity or to 0."""
    if number > MOST_VALUE:
        raise _bad(field, text, "too large: at most 1e15")
    if abs(number) < LEAST_VALUE and re.search("[1-9]", text.lower().partition("e")[0]):
        raise _bad(field, text, "too small: at least 1e-15")


def _refuse_comma(field: str, text: str) -> None:
    """A comma inside a number is said with what to write instead."""
    either = _THOUSANDS.fullmatch(text)
    if either:
        raise _bad(field, text, f"with a comma: write {either[1]}{either[2]}, or {either[1]}.{either[2]}")
    if _GROUPED.fullmatch(text):
        raise _bad(field, text, f"with commas: write {one_line(text.replace(',', ''), 30)}")
    if _DECIMAL_COMMA.fullmatch(text):
        plain = text.replace(".", "").replace(",", ".")
        raise _bad(field, text, f"decimal comma: write {one_line(plain, 30)}")


def _kind(hint: Any) -> type:
    """The type of a field whose blank is None: int, float, bool; else str."""
    kinds: tuple[type, ...] = get_args(hint) or (hint,)
    return kinds[0]


KINDS: Final = {name: _kind(hint) for name, hint in get_type_hints(Row).items()}
