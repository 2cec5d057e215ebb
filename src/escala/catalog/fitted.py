"""Factors that published runs put on the catalog's numbers: data/fitted.toml, written by scripts/fit.

An entry names what it touches (accelerators or architectures, engines, or shared assumptions), the field, and
the factor. Without an entry the number of the record stands: its value before the fit. Knows no model.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from escala.catalog.loader import CatalogError, Source, data_file, read_toml

KINDS: Final = ("accelerator", "engine", "assumption")
# Trusted rows from which an engine, a device or an engine on an architecture counts as calibrated.
CALIBRATED_ROWS: Final = 5
_RUN_KEYS: Final = {"title", "date", "digest", "engines", "accelerators", "pairs"}
_KEYS: Final = {"name", "of", "names", "field", "factor", "sd", "share"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One fitted number: the factor on the record's value, its uncertainty and the share that data decide.

    `sd` is the standard deviation of the factor's logarithm; `names` are empty where all are touched.
    """

    name: str
    of: str
    names: tuple[str, ...]
    field: str
    factor: float
    sd: float
    share: float

    def touches(self, of: str, names: Iterable[str], field: str) -> bool:
        """Whether the factor stands on this field of an entry that goes by any of these names."""
        return (of, field) == (self.of, self.field) and (
            not self.names or not set(names).isdisjoint(self.names)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """All factors, where they come from, and the engines, accelerators and pairs of both behind them.

    `digest` is that of the rows and the list of free numbers that were fitted.
    """

    source: Source
    digest: str
    factors: tuple[Factor, ...]
    engines: frozenset[str] = frozenset()
    accelerators: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()

    def architectures(self, engine: str) -> tuple[str, ...]:
        """Architectures on which runs of an engine took part in the fit."""
        found = (pair.partition(" on ") for pair in self.pairs)
        return tuple(sorted(architecture for name, _, architecture in found if name == engine))


@cache
def fitted() -> Fitted:
    """The factors of the last fit; without them no prediction is that of the accuracy page: none is made."""
    file = data_file("fitted.toml")
    tables = read_toml(file) if file.is_file() else {}
    run: dict[str, Any] = tables.get("run", {})
    if not set(run) >= _RUN_KEYS:
        raise CatalogError(f"fitted.toml is missing, or its [run] lacks {sorted(_RUN_KEYS - set(run))}")
    source = Source(
        title=str(run["title"]),
        publisher="escala, docs/accuracy",
        date=str(run["date"]),
        read="fit",
    )
    return Fitted(
        source=source,
        digest=str(run["digest"]),
        factors=tuple(_factor(table) for table in tables["parameter"]),
        engines=frozenset(run["engines"]),
        accelerators=frozenset(run["accelerators"]),
        pairs=frozenset(run["pairs"]),
    )


def factor_of(of: str, names: Iterable[str], field: str) -> float | None:
    """The product of all factors on one field; None where the fit touches it not."""
    every = tuple(names)
    found = [each.factor for each in fitted().factors if each.touches(of, every, field)]
    return math.prod(found) if found else None


def _factor(table: dict[str, Any]) -> Factor:
    if set(table) != _KEYS or table["of"] not in KINDS or not _is_sound(table):
        raise CatalogError(
            f"fitted.toml: a parameter needs {sorted(_KEYS)}, one of {KINDS}, a list of names, a finite "
            "factor above 0, an sd of at least 0 and a share from 0 to 1"
        )
    return Factor(**{**table, "names": tuple(table["names"])})


def _is_sound(table: dict[str, Any]) -> bool:
    numbers = [table[key] for key in ("factor", "sd", "share")]
    if not isinstance(table["names"], list) or not all(isinstance(each, float) for each in numbers):
        return False
    factor, sd, share = map(float, numbers)
    return 0.0 < factor < math.inf and sd >= 0.0 and 0.0 <= share <= 1.0
