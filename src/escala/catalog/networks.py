"""Published networks by name. Knows where each shape is published; the shapes are config.json files.

Names are compared without case and punctuation, but for the point in a number that tells 1.3b from 13b; the
id on the Hugging Face hub is a name as well.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

from escala.catalog.families import network_from_config
from escala.catalog.loader import data_file, read_toml
from escala.errors import unknown
from escala.model.network import Network

PUNCTUATION: Final = re.compile(r"(?<!\d)\.|\.(?!\d)|[^a-z0-9.]")
HINT: Final = "`escala catalog networks` lists all; a config.json or a TOML description can be given as well"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkEntry:
    """What the catalogue says of a network: source, hub id, published count, and the day it was typed in."""

    name: str
    source: str
    checked: date
    parameters: float
    hub: str | None = None
    note: str = ""

    @property
    def trust(self) -> str:
        """How the shape was found, in words: every one was typed in without a connection."""
        return (
            f"recalled from the {'public config' if 'config.json' in self.source else 'source'}, not re-read"
        )


def names() -> tuple[str, ...]:
    """Names in the order of the catalogue; no shape is read."""
    return tuple(_entries())


def describe(name: str) -> NetworkEntry:
    """The entry of a network, for people and reports."""
    return _entries()[resolve(name)]


def network(name: str) -> Network:
    """The network of this name; an unknown one is refused with near names."""
    entry = describe(name)
    return _network(entry.name)


def config(name: str) -> Mapping[str, object]:
    """The keys of the config.json of a network, as a fresh dict."""
    keys: dict[str, object] = msgspec.json.decode(_file(resolve(name)).read_bytes(), type=dict)
    return keys


def resolve(name: str) -> str:
    """The catalogue's own spelling of a name or hub id."""
    found = _spellings().get(_plain(name)) or _pointless().get(_plain(name).replace(".", ""))
    if found is None:
        raise unknown("network", name, names(), HINT)
    return found


def _file(name: str) -> Traversable:
    return data_file("networks") / f"{name.replace('/', '-')}.json"


@cache
def _network(name: str) -> Network:
    entry = _entries()[name]
    return network_from_config(config(name), name, f"{entry.source}; {entry.trust}, {entry.checked}")


@cache
def _entries() -> dict[str, NetworkEntry]:
    index = read_toml(data_file("networks") / "index.toml")
    tables = {name: table for name, table in index.items() if isinstance(table, dict)}
    return {name: msgspec.convert({"name": name, **table}, NetworkEntry) for name, table in tables.items()}


@cache
def _spellings() -> dict[str, str]:
    hubs = {_plain(entry.hub): name for name, entry in _entries().items() if entry.hub}
    return hubs | {_plain(name): name for name in _entries()}


@cache
def _pointless() -> dict[str, str]:
    """Spellings without any point, where that leaves no doubt: gpt313b may be 1.3b or 13b."""
    names_of: dict[str, set[str]] = {}
    for spelling, name in _spellings().items():
        names_of.setdefault(spelling.replace(".", ""), set()).add(name)
    return {spelling: found.pop() for spelling, found in names_of.items() if len(found) == 1}


def _plain(name: str) -> str:
    return PUNCTUATION.sub("", name.lower())
