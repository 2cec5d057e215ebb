"""The catalog as data: its kinds, the entries of one kind, or every fact of one entry. Adds no fact."""

from dataclasses import dataclass
from typing import Final

from escala.catalog.facts import Fact, entries, kinds, lookup, names
from escala.catalog.loader import shown
from escala.errors import EscalaError, unknown
from escala.report.numbers import short

CATALOG_SCHEMA: Final = "escala/catalog@1"
# What stands beside a name in the list of its kind.
SUMMARIES: Final = {
    "accelerators": ("architecture", "memory_nominal", "bf16"),
    "links": ("title", "bandwidth"),
    "clusters": ("devices", "accelerator", "title"),
    "networks": ("parameters", "layers", "hub"),
    "engines": ("title",),
    "assumptions": (),
    "devices": ("title",),
    "access": ("title", "energy"),
    "grid": ("country", "carbon"),
    "pue": ("operator", "pue"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindView:
    """One kind of entry: how many there are, and the name of one."""

    kind: str
    entries: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryView:
    """One entry in a list: its name and what it is, in a few words."""

    name: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogView:
    """The document of `escala catalog --json`: `kinds`, or `entries` of `kind`, or `facts` of one entry.

    `others` are the entries of other kinds that have the same name.
    """

    schema: str
    kind: str | None = None
    kinds: tuple[KindView, ...] = ()
    entries: tuple[EntryView, ...] = ()
    facts: tuple[Fact, ...] = ()
    others: tuple[str, ...] = ()


def catalog_view(name: str | None) -> CatalogView:
    """What the catalog says to a kind, a name, or nothing."""
    if name is None:
        return CatalogView(schema=CATALOG_SCHEMA, kinds=tuple(_kind(kind) for kind in kinds()))
    if name in kinds():
        listed = tuple(_entry(name, each) for each in names(name))
        return CatalogView(schema=CATALOG_SCHEMA, kind=name, entries=listed)
    facts = tuple(_facts(name))
    own = f"{facts[0].kind}/{facts[0].entry}"
    others = tuple(each for each in entries(name) if each != own)
    return CatalogView(schema=CATALOG_SCHEMA, kind=facts[0].kind, facts=facts, others=others)


def _facts(name: str) -> list[Fact]:
    """The facts of a name; an unknown one is refused with near names and near kinds."""
    try:
        return lookup(name)
    except EscalaError:
        every = [each for kind in kinds() for each in names(kind)]
        hint = f"the catalog has {', '.join(kinds())}"
        raise unknown("name", shown(name), [*kinds(), *every], hint) from None


def _kind(kind: str) -> KindView:
    every = names(kind)
    return KindView(kind=kind, entries=len(every), example=every[0] if every else "")


def _entry(kind: str, name: str) -> EntryView:
    found = {fact.name: fact for fact in lookup(f"{kind}/{name}")}
    wanted = SUMMARIES.get(kind, ())
    if not wanted:
        fact = next(iter(found.values()))
        return EntryView(name=name, summary=f"{fact.text}: {fact.condition}")
    return EntryView(name=name, summary=", ".join(_summary(found[each]) for each in wanted if each in found))


def _summary(fact: Fact) -> str:
    """A fact as it stands in a list."""
    if fact.name == "parameters" and isinstance(fact.value, float):
        return f"{short(fact.value)} parameters"
    units = {"devices": " devices", "layers": " layers"}
    return f"{fact.text}{units.get(fact.name, '')}"
