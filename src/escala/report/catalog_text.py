"""The catalog for people: kinds, lists, and the facts of an entry with their sources."""

from rich.console import Console
from rich.text import Text

from escala.catalog.facts import Fact
from escala.report.catalog_view import CatalogView
from escala.report.layout import QUIET, STRONG, add_row, flow, hanging, put, put_table, room, table_of
from escala.report.numbers import count


def print_catalog(console: Console, given: CatalogView) -> None:
    """The part of the catalog that was asked for."""
    if given.kinds:
        print_kinds(console, given)
    elif given.facts:
        print_facts(console, given)
    else:
        print_entries(console, given)


def print_kinds(console: Console, given: CatalogView) -> None:
    """What the catalog holds."""
    table = table_of(console, (("kind", "left"), ("entries", "right"), ("for example", "text")))
    for each in given.kinds:
        add_row(table, each.kind, count(each.entries), each.example)
    put_table(console, table)
    put(
        console,
        Text("escala catalog KIND lists a kind, escala catalog NAME shows an entry", style=QUIET),
        indent=2,
    )


def print_entries(console: Console, given: CatalogView) -> None:
    """The entries of one kind."""
    table = table_of(console, ((f"{given.kind}", "left"), ("", "text")))
    for each in given.entries:
        add_row(table, each.name, Text(each.summary, style=QUIET))
    put_table(console, table)


def print_facts(console: Console, given: CatalogView) -> None:
    """Every fact of an entry; a number in brackets names its source below."""
    facts = given.facts
    put(console, Text.assemble((facts[0].entry, STRONG), (f"  {facts[0].kind}", QUIET)))
    sources: dict[str, int] = {}
    table = table_of(console, (("", "left"), ("", "text")))
    for fact in facts:
        add_row(table, fact.name, _said(fact, sources))
        for other in fact.also:
            add_row(table, "", Text.assemble(("also ", "yellow"), _said(other, sources)))
    put_table(console, table)
    for source, number in sources.items():
        hanging(console, f"[{number}]", flow([source], room(console)))
    if given.others:
        put(console)
        put(console, Text(f"the name also means {', '.join(given.others)}", style=QUIET), indent=2)


def _said(fact: Fact, sources: dict[str, int]) -> Text:
    """Value, range, condition, and the number of the source."""
    source = _source(fact)
    number = sources.setdefault(source, len(sources) + 1) if source else 0
    condition = f"; {fact.condition}" if fact.condition else ""
    mark = f" [{number}]" if number else ""
    return Text.assemble((fact.text, STRONG), _range(fact), (f"{condition}{mark}", QUIET))


def _range(fact: Fact) -> str:
    if fact.low is None or fact.high is None:
        return ""
    unit = f" {fact.unit}" if fact.unit else ""
    return f" ({fact.low:g} to {fact.high:g}{unit})"


def _source(fact: Fact) -> str:
    """Publisher, title, date and how the value was found."""
    publisher = "" if fact.source.lower().startswith(fact.publisher.lower()) else f"{fact.publisher}: "
    parts = (f"{publisher}{fact.source}" if fact.source else "", fact.date, fact.trust)
    return "; ".join(part for part in parts if part)
