"""calibration.toml: what own runs made of numbers, as a file. Reads and writes; fits nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

import msgspec

from escala import __version__
from escala.catalog.fitted import fitted
from escala.errors import InvalidInput, spoken, unknown
from escala.formats.files import read_keys
from escala.formats.record_keys import choices, record_of
from escala.model.interval import Regime
from escala.model.own import OWN_SCHEMA, OWNERS, OwnRuns
from escala.wholefile import write_whole

HEAD: Final = """\
# Written by escala calibrate; do not edit. Each factor multiplies the number that was `before`; sd is that of
# the factor's logarithm, share what the runs decide of it (the rest is the prior).
"""
_AGAIN: Final = "calibrate again from the same runs"
_REGIMES: Final = tuple(kind.name.lower() for kind in Regime)


def write_calibration(given: OwnRuns, path: str) -> None:
    """Write a calibration; the file appears whole or not at all."""
    write_whole(Path(path), calibration_text(given).encode())


def calibration_text(given: OwnRuns) -> str:
    """The file as text."""
    tables = [(name, getattr(given, name)) for name in ("factor", "spread")]
    flat = [line for line in _lines(given) if line]
    below = ["\n".join([f"\n[[{name}]]", *_lines(each)]) for name, records in tables for each in records]
    return HEAD + "\n".join([*flat, *below]) + "\n"


def _lines(record: object) -> Iterator[str]:
    for field in fields(record):  # type: ignore[arg-type] # a dataclass
        value = getattr(record, field.name)
        if field.name not in ("factor", "spread") or not isinstance(value, tuple):
            # JSON of texts, lists of texts, numbers and switches is TOML as well
            yield f"{field.name} = {msgspec.json.encode(value).decode()}"


def read_calibration(path: str) -> OwnRuns:
    """A calibration that this version of escala wrote."""
    if not path.strip():
        raise InvalidInput("no calibration is named; give the file that `escala calibrate -o` wrote")
    return calibration_of(read_keys(Path(path)), path)


def calibration_of(keys: Mapping[str, object], where: str) -> OwnRuns:
    """The calibration that the keys hold; another schema, version or fit is refused."""
    if keys.get("schema") != OWN_SCHEMA:
        raise InvalidInput(
            f"{where}: schema is {spoken(keys.get('schema'))}; a calibration has '{OWN_SCHEMA}',"
            " and `escala calibrate RUNS -o FILE` writes one"
        )
    if keys.get("escala") != __version__:
        raise InvalidInput(
            f"{where} was written by escala {spoken(keys.get('escala'))}, and this is {__version__}; {_AGAIN}"
        )
    if keys.get("fit") != fitted().digest:
        raise InvalidInput(
            f"{where} stands on the published fit {spoken(keys.get('fit'))}, and this escala has"
            f" '{fitted().digest}'; {_AGAIN}"
        )
    found = record_of(OwnRuns, keys, where)
    _refuse_broken(found, where)
    return found


def _refuse_broken(given: OwnRuns, where: str) -> None:
    """Values that no calibration has."""
    for each in given.factor:
        if each.of not in OWNERS:
            raise unknown("owner", each.of, OWNERS, f"it stands in {where}; {choices(OWNERS)}")
        if not each.factor > 0.0:
            raise InvalidInput(f"{where}: the factor on {each.field} is {each.factor:g}, not above 0")
    for spread in given.spread:
        if spread.regime not in _REGIMES:
            raise unknown("regime", spread.regime, _REGIMES, f"it stands in {where}; {choices(_REGIMES)}")
