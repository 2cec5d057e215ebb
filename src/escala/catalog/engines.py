"""Engines (framework generations) and the shared assumptions. Knows how their files look, not what they mean.

data/engines/<name>.toml:   title, versions, source, lacks, has, one table a number in [time] and [memory],
                            and in [messages.BACKEND] where it is known how it sends on that backend;
                            `like` names an engine that it wraps, whose fitted factors hold for it as well
data/assumptions.toml:      one table a number
A number is `{ value, source, kind, low, high, formula }`; value in base units, a word or a switch where the
field is one. `source` is a key of the file's [sources] or itself a public title.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

from escala.catalog.fitted import factor_of, fitted
from escala.catalog.loader import (
    CatalogError,
    Source,
    data_file,
    data_files,
    plain,
    read_toml,
    shown,
    sources_of,
)
from escala.errors import unknown
from escala.model.assumptions import Assumptions
from escala.model.engine import Engine, EngineMemory, EngineMessages, EngineTime

KINDS: Final = ("fit", "read", "traced", "physics", "assumption")
_NEEDED_KEYS: Final = {"title", "versions", "source", "time", "memory"}
_ENGINE_KEYS: Final = _NEEDED_KEYS | {"lacks", "has", "like", "aliases", "sources", "schema", "messages"}
_SETTING_KEYS: Final = {"value", "source", "kind", "low", "high", "formula", "condition", "date"}
_Record = TypeVar("_Record", EngineTime, EngineMemory, EngineMessages, Assumptions)
_MESSAGES: Final = "messages."


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One number, word or switch of an engine or of the assumptions: its range and its source."""

    value: float | str | bool
    source: Source
    kind: str
    low: float | None = None
    high: float | None = None
    formula: str = ""
    condition: str = ""


def engines() -> tuple[str, ...]:
    """Names of all engines."""
    return tuple(data_files("engines"))


@cache
def engine(name: str) -> Engine:
    """An engine by name, case and punctuation aside."""
    known = engine_name(name)
    table = _engine_table(known)
    settings = engine_settings(known)
    return Engine(
        name=known,
        title=table["title"],
        versions=table["versions"],
        source=table["source"],
        time=_record(EngineTime, settings["time"]),
        memory=_record(EngineMemory, settings["memory"]),
        messages=tuple(
            (table.removeprefix(_MESSAGES), _record(EngineMessages, own))
            for table, own in settings.items()
            if table.startswith(_MESSAGES)
        ),
        lacks=tuple(table.get("lacks", ())),
        has=tuple(table.get("has", ())),
        is_calibrated=known in fitted().engines,
        calibrated_on=fitted().architectures(known),
    )


def engine_name(name: str) -> str:
    """The catalog's name for an engine."""
    found = find_engine(name)
    if found is None:
        raise unknown("engine", shown(name), engines(), "`escala catalog engines` lists all")
    return found


def find_engine(name: str) -> str | None:
    """The engine that a name or alias means; None when there is none."""
    if name in engines():
        return name  # without reading all files for their aliases
    aliases = {known: _engine_table(known).get("aliases", ()) for known in engines()}
    names = {plain(each): known for known in aliases for each in (known, *aliases[known])}
    return names.get(plain(name))


def engine_settings(name: str) -> Mapping[str, Mapping[str, Setting]]:
    """Every number of an engine with its source: {"time": {...}, "memory": {...}, "messages.gloo": {...}}."""
    known = engine_name(name)
    file, table = f"{known}.toml", _engine_table(known)
    sources = sources_of(file, table.get("sources", {}))
    return {
        "time": _fitted(
            "engine",
            table.get("like", known),
            settings_of(EngineTime, file, "time", table["time"], sources),
        ),
        "memory": settings_of(EngineMemory, file, "memory", table["memory"], sources),
        **{
            f"{_MESSAGES}{backend}": settings_of(EngineMessages, file, f"{_MESSAGES}{backend}", own, sources)
            for backend, own in table.get("messages", {}).items()
        },
    }


def _fitted(of: str, name: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Numbers times the factors that published runs put on them."""
    return {field: _times(setting, factor_of(of, (name,), field)) for field, setting in settings.items()}


def _times(before: Setting, factor: float | None) -> Setting:
    if factor is None or not isinstance(before.value, float):
        return before
    condition = f"{factor:.3f} times the value before the fit, {before.value:g}"
    return Setting(
        value=before.value * factor,
        source=fitted().source,
        kind="fit",
        formula=before.formula,
        condition=condition,
    )


@cache
def assumptions() -> Assumptions:
    """The shared constants of the model."""
    return _record(Assumptions, assumption_settings())


def assumption_settings() -> Mapping[str, Setting]:
    """Every shared constant with range, source and formula."""
    table = dict(_read("assumptions"))
    sources = sources_of("assumptions.toml", table.pop("sources", {}))
    table.pop("schema", None)
    return _fitted("assumption", "", settings_of(Assumptions, "assumptions.toml", "top", table, sources))


@cache
def _read(name: str) -> Mapping[str, Any]:
    file = data_file(f"{name}.toml")
    if not file.is_file():
        raise CatalogError(f"{file.name} is missing from the catalog")
    return read_toml(file)


def _engine_table(name: str) -> Mapping[str, Any]:
    table = _read(f"engines/{name}")
    surplus = sorted(set(table) - _ENGINE_KEYS)
    missing = sorted(_NEEDED_KEYS - set(table))
    if surplus or missing:
        raise CatalogError(f"{name}.toml: unknown keys {surplus}, missing keys {missing}")
    return table


def settings_of(
    record: type[Any], file: str, where: str, table: Mapping[str, Any], sources: Mapping[str, Source]
) -> dict[str, Setting]:
    """The numbers of one table of a file, one for each field of `record`."""
    hints = get_type_hints(record)
    surplus, missing = sorted(set(table) - set(hints)), sorted(set(hints) - set(table))
    if surplus or missing:
        raise CatalogError(f"{file}: [{where}] has unknown keys {surplus} and lacks {missing}")
    return {name: setting_of(f"{file}: {where}.{name}", table[name], hints[name], sources) for name in hints}


def setting_of(where: str, given: Any, wanted: Any, sources: Mapping[str, Source]) -> Setting:
    """One number of a file, in the type that its field has."""
    if not isinstance(given, dict) or not {"value", "source", "kind"} <= set(given) <= _SETTING_KEYS:
        raise CatalogError(f"{where} needs value, source and kind, and may have only {sorted(_SETTING_KEYS)}")
    if given["kind"] not in KINDS:
        raise CatalogError(f"{where} is of kind '{given['kind']}'; allowed are {', '.join(KINDS)}")
    source = sources.get(given["source"]) or Source(
        title=given["source"], publisher="", date=str(given.get("date", "")), read=given["kind"]
    )
    low, high = given.get("low"), given.get("high")
    value = _value(where, given["value"], wanted)
    if low is not None and high is not None and isinstance(value, float) and not low <= value <= high:
        raise CatalogError(f"{where}: {value:g} is outside its range {low:g} to {high:g}")
    return Setting(
        value=value,
        source=source,
        kind=given["kind"],
        low=low,
        high=high,
        formula=given.get("formula", ""),
        condition=given.get("condition", ""),
    )


def _value(where: str, given: Any, wanted: Any) -> float | str | bool:
    if isinstance(wanted, type) and issubclass(wanted, StrEnum):
        try:
            return wanted(given)
        except ValueError as error:
            raise CatalogError(f"{where}: {error}; allowed are {', '.join(wanted)}") from error
    is_switch = wanted is bool
    if is_switch != isinstance(given, bool) or not isinstance(given, bool | int | float):
        raise CatalogError(f"{where} is {given!r}, not {'true or false' if is_switch else 'a number'}")
    return given if is_switch else float(given)


def _record(record: type[_Record], settings: Mapping[str, Setting]) -> _Record:
    values: dict[str, Any] = {field.name: settings[field.name].value for field in fields(record)}
    return record(**values)
