"""Checked access to the tables of a file: every fault names file, table and key. Knows no file's meaning."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from escala.catalog.clusters import MOST_DEVICES
from escala.catalog.loader import CARBON, quantity_of, shown
from escala.errors import InvalidInput, spoken, unknown

MOST_TEXT: Final = 200
_EXAMPLES: Final = {
    "bytes": "80 GiB",
    "bytes_per_s": "400 Gb/s",
    "flop_per_s": "989 TFLOP/s",
    "w": "700 W",
    "s": "12 us",
    CARBON: f"174 {CARBON}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Numbers that are allowed."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Keys:
    """Checked access to one table; every fault is an InvalidInput that names file, table and key."""

    origin: str
    place: str
    table: Mapping[str, object]

    def fail(self, message: str) -> InvalidInput:
        """The error that names the place."""
        where = f"{self.place}: " if self.place else ""
        return InvalidInput(f"{self.origin}: {where}{message}")

    def allow(self, keys: Iterable[str]) -> None:
        """Refuse keys that are not known."""
        known = tuple(keys)
        for key in self.table:
            if key not in known:
                error = unknown("key", shown(str(key)), known, f"allowed are {', '.join(known)}")
                raise self.fail(str(error))

    def inner(self, key: str, keys: Iterable[str]) -> "Keys":
        """The table of a key, empty if absent."""
        given = self.table.get(key, {})
        found = Keys(self.origin, f"[{key}]", _mapping(given, self, key))
        found.allow(keys)
        return found

    def several(self, key: str, keys: Iterable[str]) -> list["Keys"]:
        """The tables of a list, at least one."""
        given = self.table.get(key)
        if not isinstance(given, list) or not given:
            raise self.fail(f"{key} has no entry; write at least one [[{key}]]")
        found = [
            Keys(self.origin, f"[[{key}]] {i}", _mapping(item, self, key)) for i, item in enumerate(given, 1)
        ]
        for each in found:
            each.allow(keys)
        return found

    def text(self, key: str, default: str | None = None) -> str:
        """A short printable text."""
        given = self.table.get(key, default)
        if given is None:
            raise self.fail(f"lacks {key}; add it")
        if (
            not isinstance(given, str)
            or not given.strip()
            or len(given) > MOST_TEXT
            or not given.isprintable()
        ):
            raise self.fail(f"{key} has to be a text of 1 to {MOST_TEXT} printable characters")
        return given

    def optional_text(self, key: str) -> str | None:
        """A text, or None where the key is absent."""
        return self.text(key) if key in self.table else None

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of devices."""
        given = self.table.get(key, default)
        if given is None:
            raise self.fail(f"lacks {key}; give a whole number from 1 to {MOST_DEVICES:,}")
        if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_DEVICES:
            raise self.fail(f"{key} is {spoken(given, 60)}; give a whole number from 1 to {MOST_DEVICES:,}")
        return given

    def number(self, key: str, default: float, allowed: Range) -> float:
        """A number inside a range."""
        given = self.table.get(key, default)
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not isinstance(given, int | float) or not is_number or not allowed.low <= given <= allowed.high:
            raise self.fail(
                f"{key} is {spoken(given, 60)}; give a number from {allowed.low:g} to {allowed.high:g}"
            )
        return float(given)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        given = self.table.get(key, default)
        if not isinstance(given, bool):
            raise self.fail(f"{key} is {spoken(given, 60)}; write true or false")
        return given

    def quantity(self, key: str, unit: str, default: float | None) -> float | None:
        """A quantity above zero in base units."""
        if key not in self.table:
            return default
        given = self.table[key]
        try:
            value = quantity_of(given, unit)
        except (InvalidInput, ValueError):
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise self.fail(
                f"{key} is {spoken(given, 60)}; give a quantity above zero with its unit,"
                f" such as '{_EXAMPLES[unit]}'"
            )
        return value


def _mapping(given: object, keys: Keys, key: str) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise keys.fail(f"{key} is {spoken(given, 60)}; it has to be a table with keys")
    return given
