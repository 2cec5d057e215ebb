"""Pairs of networks that a publication found equally good. Knows shapes and sources, judges no quality."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

from escala.catalog.loader import Source, data_file, read_toml, sources_of
from escala.model.network import Experts, Network

_FILE: Final = "equivalents.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What tells a network of such a pair: its layers, its width, the experts of its widest layer."""

    layers: int
    hidden: int
    experts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """A dense and a sparse network of equal quality, in the source's words."""

    name: str
    sparse: Shape
    dense: Shape
    words: str
    source: Source


@cache
def equivalents() -> tuple[Equivalent, ...]:
    """Every published pair of the catalog."""
    table = dict(read_toml(data_file(_FILE)))
    sources = sources_of(_FILE, table.pop("sources", {}))
    table.pop("schema", None)
    return tuple(_entry(name, each, sources) for name, each in table.items())


def equal_pairs(networks: Iterable[Network]) -> tuple[Equivalent, ...]:
    """The published pairs of which both networks are given."""
    shapes = {shape_of(each) for each in networks}
    return tuple(each for each in equivalents() if {each.sparse, each.dense} <= shapes)


def shape_of(network: Network) -> Shape:
    """Layers, width and most experts of a network."""
    stack = network.main
    parts = (part for block in stack.blocks for part in block.parts if isinstance(part, Experts))
    return Shape(
        layers=stack.layers, hidden=stack.hidden, experts=max((part.experts for part in parts), default=0)
    )


def _entry(name: str, table: Mapping[str, Any], sources: Mapping[str, Source]) -> Equivalent:
    return Equivalent(
        name=name,
        sparse=msgspec.convert(table["sparse"], Shape),
        dense=msgspec.convert(table["dense"], Shape),
        words=table["words"],
        source=sources[table["source"]],
    )
