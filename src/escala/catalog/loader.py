"""Catalog files: TOML entries whose quantities carry value, unit, source, date and condition.

Knows the file format and its checks; knows no kind of entry. A fault in a catalog file is ours, not the
user's: it raises CatalogError with the file's name.
"""

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from escala import units
from escala.errors import EscalaError

# How far a number can be trusted, in the words shown to people.
KINDS: Final = {
    "datasheet": "read in the vendor's document",
    "table": "read in a public table",
    "measured": "measured, published",
    "derived": "computed from measured values, see condition",
    "fit": "fitted to published training runs",
    "read": "read in the software's source or documents",
    "traced": "traced in a run",
    "physics": "follows from what the software does",
    "second-hand": "read in a text that quotes the source",
    "recalled": "recalled from the source, not re-read",
    "assumption": "assumption",
}
CARBON: Final = "gCO2e/kWh"
RATIO: Final = "ratio"
TRAFFIC: Final = "J/MB"
# Date of a source that is one document a device: the entry's `released` takes its place.
RELEASE: Final = "release year"
# Base units of what units.py does not know.
_BASE_UNITS: Final = {CARBON: "kg_per_j", RATIO: "", TRAFFIC: "j_per_byte"}
# Base units in one of what a text is written in.
_SCALES: Final = {CARBON: 1e-3 / units.KWH_J, TRAFFIC: 1e-6}
MOST_SHOWN: Final = 60
_NUMBER_KEYS: Final = {"value", "source", "date", "condition", "kind", "low", "high", "also", "formula"}
_SOURCE_KEYS: Final = {"title", "publisher", "date", "read", "url"}


class CatalogError(AssertionError):
    """A catalog file of escala breaks its own format: always a fault of escala."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a number was found: public title, publisher, date, and how it was read (a key of KINDS)."""

    title: str
    publisher: str
    date: str
    read: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One number in a base unit, with the text it was given as, its source and the values that disagree."""

    value: float
    text: str
    unit: str
    source: Source
    date: str
    condition: str = ""
    kind: str = "table"
    low: float | None = None
    high: float | None = None
    also: tuple["Quantity", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One named table of a catalog file, with the sources that its keys resolve to."""

    name: str
    file: str
    table: Mapping[str, Any]
    sources: Mapping[str, Source] = field(repr=False)

    def fail(self, message: str) -> CatalogError:
        """The error that names this entry and its file."""
        return CatalogError(f"{self.file}: [{self.name}] {message}")

    def allow(self, keys: Iterable[str]) -> None:
        """Refuses keys that the kind of entry does not know."""
        surplus = set(self.table) - set(keys)
        if surplus:
            raise self.fail(f"has unknown keys {sorted(surplus)}")

    def text(self, key: str, default: str | None = None) -> str:
        """A plain string."""
        value = self.table.get(key, default)
        if not isinstance(value, str):
            raise self.fail(f"needs text for '{key}'")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """A plain whole number of at least one."""
        value = self.table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.fail(f"needs a whole number of at least 1 for '{key}'")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; absent is empty."""
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(f"needs a list of texts for '{key}'")
        return tuple(value)

    def source(self, key: str = "source") -> Source:
        """The source that a key of this entry names."""
        return self._source(self.text(key))

    def inner(self, key: str) -> "Entry":
        """A table inside this one as an entry of its own, with the same sources."""
        table = self.table.get(key)
        if not isinstance(table, dict):
            raise self.fail(f"needs a table '{key}'")
        return Entry(name=f"{self.name}.{key}", file=self.file, table=table, sources=self.sources)

    def quantity(self, key: str, unit: str) -> Quantity:
        """A quantity that must be there, in the given base unit."""
        found = self.optional(key, unit)
        if found is None:
            raise self.fail(f"lacks '{key}'")
        return found

    def optional(self, key: str, unit: str) -> Quantity | None:
        """A quantity, or None where the entry does not give it."""
        given = self.table.get(key)
        return None if given is None else self._quantity(key, given, unit)

    def _quantity(self, key: str, given: Any, unit: str) -> Quantity:
        if not isinstance(given, dict) or not {"value", "source"} <= set(given) <= _NUMBER_KEYS:
            raise self.fail(f"'{key}' needs value and source, and may have only {sorted(_NUMBER_KEYS)}")
        source = self._source(given["source"])
        kind = given.get("kind", source.read)
        if kind not in KINDS:
            raise self.fail(f"'{key}' has kind '{kind}'; allowed are {', '.join(KINDS)}")
        return Quantity(
            value=self._number(key, given["value"], unit),
            text=_text_of(given["value"]),
            unit=_BASE_UNITS.get(unit, unit),
            source=source,
            date=str(given.get("date", self._date(source))),
            condition=given.get("condition", ""),
            kind=kind,
            low=None if "low" not in given else self._number(key, given["low"], unit),
            high=None if "high" not in given else self._number(key, given["high"], unit),
            also=tuple(self._quantity(key, other, unit) for other in given.get("also", [])),
        )

    def _date(self, source: Source) -> str:
        return str(self.table.get("released", source.date)) if source.date == RELEASE else source.date

    def _number(self, key: str, given: Any, unit: str) -> float:
        try:
            value = quantity_of(given, unit)
        except EscalaError as error:
            raise self.fail(f"'{key}': {error}") from error
        except (TypeError, ValueError) as error:
            raise self.fail(f"'{key}' is {given!r}, not a quantity in {unit}") from error
        if not math.isfinite(value) or value < 0:
            raise self.fail(f"'{key}' is {value}; it must be finite and not negative")
        return value

    def _source(self, key: Any) -> Source:
        if not isinstance(key, str) or key not in self.sources:
            raise self.fail(f"names the source {key!r}, which no [sources] table has")
        return self.sources[key]


def quantity_of(given: object, unit: str) -> float:
    """A catalog value in base units: text with unit, or a plain number where the unit is a ratio."""
    if unit == RATIO:
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise ValueError(given)
        return float(given)
    if not isinstance(given, str) or not given.strip()[-1:].isalpha():
        raise ValueError(given)
    if unit in _SCALES:
        number, _, rest = given.partition(" ")
        if rest != unit:
            raise ValueError(given)
        return float(number) * _SCALES[unit]
    return units.parse(given, unit)


class Entries(dict[str, Entry]):
    """The entries of one kind by name; what else each is called is looked up once."""

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Entry by name or alias, case and punctuation aside."""
        names: dict[str, str] = {}
        for entry in self.values():
            for name in (entry.name, *entry.texts("aliases")):
                if names.setdefault(plain(name), entry.name) != entry.name:
                    raise entry.fail(f"shares the name '{name}' with [{names[plain(name)]}]")
        return names


@cache
def entries(where: str) -> Entries:
    """All entries of data/<where>: one TOML file, or every TOML file of a folder; sources resolved."""
    base = _data() / where
    found = _toml_files(base) if base.is_dir() else [_data() / f"{where}.toml"]
    shared = _sources(_data() / where.partition("/")[0] / "sources.toml")
    collected = Entries()
    for file in found:
        tables = read_toml(file)
        sources = {**shared, **sources_of(file.name, tables.pop("sources", {}))}
        for name, table in tables.items():
            if name in collected or not isinstance(table, dict):
                raise CatalogError(f"{file.name}: [{name}] is given twice or is no table")
            collected[name] = Entry(name=name, file=file.name, table=table, sources=sources)
    return collected


def read_toml(file: Traversable) -> dict[str, Any]:
    """The tables of one catalog file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{file.name}: {error}") from error


def data_files(folder: str) -> dict[str, Traversable]:
    """The TOML files of data/<folder> by name without ending; empty where the folder is missing."""
    base = _data() / folder
    return {file.name.removesuffix(".toml"): file for file in _toml_files(base)} if base.is_dir() else {}


def data_file(name: str) -> Traversable:
    """One file of the data folder."""
    return _data() / name


def sources_of(file: str, tables: Mapping[str, Any]) -> dict[str, Source]:
    """The [sources] tables of a file."""
    for key, table in tables.items():
        if not {"title", "publisher", "date", "read"} <= set(table) <= _SOURCE_KEYS:
            raise CatalogError(f"{file}: [sources.{key}] needs title, publisher, date and read")
        if table["read"] not in KINDS:
            raise CatalogError(f"{file}: [sources.{key}] is read '{table['read']}', which is no known kind")
    return {
        key: Source(**{name: str(value) for name, value in table.items()}) for key, table in tables.items()
    }


def plain(name: str) -> str:
    """A name without case and punctuation: "H100-SXM 80GB" and "h100_sxm_80gb" are the same."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def shown(name: str) -> str:
    """A given name as one short line for a message."""
    line = "".join(letter if letter.isprintable() else " " for letter in name)
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}..."


def find(name: str, known: Entries) -> str | None:
    """The entry that a name or alias means, case and punctuation aside; None when there is none."""
    return known.names.get(plain(name))


def _data() -> Traversable:
    return files("escala.catalog") / "data"


def _toml_files(folder: Traversable) -> list[Traversable]:
    found = [file for file in folder.iterdir() if file.name.endswith(".toml") and file.name != "sources.toml"]
    return sorted(found, key=lambda file: file.name)


def _sources(file: Traversable) -> dict[str, Source]:
    return sources_of(file.name, read_toml(file).get("sources", {})) if file.is_file() else {}


def _text_of(given: object) -> str:
    return given if isinstance(given, str) else f"{given:g}" if isinstance(given, float) else str(given)
