"""A table of a file with its place in messages: text, words, counts, ranges with units. Knows no scenario.

Whatever is wrong is one line: file, table, key, what was given, what is allowed.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from escala.catalog.loader import RATIO, TRAFFIC, quantity_of
from escala.errors import EscalaError, InvalidInput, spoken, unknown
from escala.federated.ranges import Range, exactly

MOST_TEXT: Final = 200
EXAMPLES: Final = {
    "bytes": "150 kB",
    "bytes_per_s": "20 Mb/s",
    "flop_per_s": "11 GFLOP/s",
    "flop": "0.6 GFLOP",
    "w": "3 W",
    "j": "15 Wh",
    "s": "2 s",
    TRAFFIC: "110 J/MB",
    "gCO2e/kWh": "174 gCO2e/kWh",
}
Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a number may be, both ends included."""

    low: float
    high: float


SHARE: Final = Bounds(low=0.0, high=1.0)
ANY: Final = Bounds(low=0.0, high=1e30)
POSITIVE: Final = Bounds(low=1e-30, high=1e30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Keys of one table; `origin` is the file, `place` the table as people write it, empty at the top."""

    origin: str
    place: str
    keys: Mapping[str, object]

    def fail(self, message: str) -> InvalidInput:
        """The error that names the file and the table."""
        return InvalidInput(f"{self.origin}: {f'{self.place} ' if self.place else ''}{message}")

    def allow(self, known: Iterable[str]) -> "Table":
        """This table, if it has no other keys."""
        names = tuple(known)
        for key in self.keys:
            if key not in names:
                where = f" in {self.place}" if self.place else ""
                error = unknown(f"key{where}", str(key), names, f"there are {', '.join(names)}")
                raise InvalidInput(f"{self.origin}: {error}")
        return self

    def has(self, key: str) -> bool:
        """Whether the key is given."""
        return key in self.keys

    def need(self, key: str, hint: str) -> object:
        """What is given for a key that must be there."""
        if key not in self.keys:
            raise self.fail(f"lacks {key}; {hint}")
        return self.keys[key]

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty."""
        given = self.keys.get(key, default)
        if not isinstance(given, str) or not given.strip() or len(given) > MOST_TEXT:
            said = "is missing" if key not in self.keys else f"is {spoken(given, 60)}"
            raise self.fail(f"{key} {said}; give a text of 1 to {MOST_TEXT} letters")
        return given.strip()

    def optional_text(self, key: str) -> str | None:
        """A text, or None where the key is not given."""
        return self.text(key) if key in self.keys else None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; absent is empty."""
        given = self.keys.get(key, [])
        if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
            raise self.fail(f"{key} is {spoken(given, 60)}; give a list of texts")
        return tuple(given)

    def word(self, key: str, kind: type[Word], default: Word) -> Word:
        """One word of a list."""
        return default if key not in self.keys else self._word(key, self.keys[key], kind)

    def words(self, key: str, kind: type[Word], default: tuple[Word, ...]) -> tuple[Word, ...]:
        """Several words of a list, at least one."""
        if key not in self.keys:
            return default
        given = self.texts(key)
        if not given:
            raise self.fail(f"{key} is empty; name some of {', '.join(kind)}")
        return tuple(dict.fromkeys(self._word(key, each, kind) for each in given))

    def _word(self, key: str, given: object, kind: type[Word]) -> Word:
        allowed = [str(each) for each in kind]
        if not isinstance(given, str) or given not in allowed:
            error = unknown(key, given if isinstance(given, str) else spoken(given, 60), allowed, "")
            raise self.fail(f"{str(error).rstrip(': ')}; allowed are {', '.join(allowed)}")
        return kind(given)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        given = self.keys.get(key, default)
        if not isinstance(given, bool):
            raise self.fail(f"{key} is {spoken(given, 60)}; give true or false")
        return given

    def count(self, key: str, bounds: Bounds, default: int | None = None) -> int:
        """A whole number within bounds."""
        given = self.keys.get(key, default)
        if isinstance(given, bool) or not isinstance(given, int) or not bounds.low <= given <= bounds.high:
            raise self.fail(self._said(key, given, f"a whole number {_between(bounds)}"))
        return given

    def number(self, key: str, bounds: Bounds, default: float | None = None) -> float:
        """A plain number within bounds."""
        given = self.keys.get(key, default)
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not math.isfinite(given) or not bounds.low <= given <= bounds.high:  # type: ignore[arg-type, operator] # is a number
            raise self.fail(self._said(key, given, f"a number {_between(bounds)}"))
        return float(given)  # type: ignore[arg-type] # is a number

    def optional_number(self, key: str, bounds: Bounds) -> float | None:
        """A plain number, or None where the key is not given."""
        return self.number(key, bounds) if key in self.keys else None

    def quantity(self, key: str, unit: str, bounds: Bounds = ANY) -> float:
        """One quantity with its unit, in base units."""
        return self._quantity(key, self.need(key, self._example(unit)), unit, bounds)

    def optional_quantity(self, key: str, unit: str, bounds: Bounds = ANY) -> float | None:
        """A quantity, or None where the key is not given."""
        return self.quantity(key, unit, bounds) if key in self.keys else None

    def range(self, key: str, unit: str, default: Range | None = None, bounds: Bounds = ANY) -> Range:
        """A quantity, or its low, mid and high as a list."""
        if key not in self.keys and default is not None:
            return default
        given = self.need(key, self._example(unit))
        if not isinstance(given, list):
            return exactly(self._quantity(key, given, unit, bounds))
        if len(given) != 3:
            raise self.fail(f"{key} has {len(given)} values; give one, or low, mid and high")
        low, mid, high = (self._quantity(key, each, unit, bounds) for each in given)
        if not low <= mid <= high:
            raise self.fail(f"{key} is not in the order low, mid, high; sort its values")
        return Range(low=low, mid=mid, high=high)

    def inner(self, key: str) -> "Table":
        """A table inside this one; absent is empty."""
        given = self.keys.get(key, {})
        if not isinstance(given, Mapping):
            raise self.fail(f"{key} is {spoken(given, 60)}; it has to be a table with keys")
        place = f"{self.place} {key}" if self.place else f"[{key}]"
        return Table(origin=self.origin, place=place, keys=given)

    def several(self, key: str, most: int) -> tuple["Table", ...]:
        """The tables of a list, at least one."""
        given = self.keys.get(key, [])
        if not isinstance(given, list) or not given or not all(isinstance(each, Mapping) for each in given):
            raise self.fail(f"{key} is {spoken(given, 60)}; write at least one [[{key}]] table")
        if len(given) > most:
            raise self.fail(f"{key} has {len(given):,} tables; at most {most:,} are allowed")
        places = (f"[[{key}]] {number}:" for number in range(1, len(given) + 1))
        return tuple(
            Table(origin=self.origin, place=place, keys=each)
            for place, each in zip(places, given, strict=True)
        )

    def _quantity(self, key: str, given: object, unit: str, bounds: Bounds) -> float:
        plain = given if isinstance(given, int | float) and not isinstance(given, bool) else None
        if plain is not None and unit != RATIO:
            raise self.fail(f"{key} is {spoken(given, 60)} without a unit; {self._example(unit)}")
        try:
            value = quantity_of(given, unit)
        except (EscalaError, TypeError, ValueError):
            raise self.fail(f"{key} is {spoken(given, 60)}; {self._example(unit)}") from None
        if not math.isfinite(value) or not bounds.low <= value <= bounds.high:
            raise self.fail(self._said(key, given, f"a value {_between(bounds)}"))
        return value

    def _said(self, key: str, given: object, allowed: str) -> str:
        said = "is missing" if key not in self.keys else f"is {spoken(given, 60)}"
        return f"{key} {said}; give {allowed}"

    def _example(self, unit: str) -> str:
        return "give a number" if unit == RATIO else f"write for example '{EXAMPLES[unit]}'"


def _between(bounds: Bounds) -> str:
    if bounds == POSITIVE:
        return f"above 0 (from {bounds.low:g} to {bounds.high:g} in base units)"
    return f"from {bounds.low:,.10g} to {_ends(bounds.high)}"


def _ends(high: float) -> str:
    return f"{high:g} in base units" if high >= ANY.high else f"{high:,.10g}"
