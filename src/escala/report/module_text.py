"""A traced module for people: totals, its units, its modules from the outside in, what is missing."""

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from escala.errors import one_line
from escala.report.layout import STRONG, add_row, flow, hanging, put, put_table, room, table_of
from escala.report.module_view import ModuleView, SubModuleView, UnitView
from escala.report.numbers import count, short
from escala.units import show_bytes

DEEPEST: Final = 4
MOST_ROWS: Final = 32
"""Modules that are shown; the JSON has all."""


def print_module(console: Console, given: ModuleView) -> None:
    """Everything that `escala trace` shows; numbers of one sample."""
    put(console, Text(f"{one_line(given.target)}: {short(given.parameters)} parameters", style=STRONG))
    length = "" if given.sequence_tokens is None else f" of {count(given.sequence_tokens)} tokens"
    work = f"{short(given.flop)}FLOP forward, {short(given.backward_flop)}FLOP backward"
    put(console, f"One sample{length}: {work.replace(' FLOP', 'FLOP')}")
    put(console)
    put_table(console, _units(console, given))
    if _shown(given, DEEPEST):
        put_table(console, _modules(console, given))
    hanging(console, "Not in", flow([f"{name}: {why}" for name, why in given.refused.items()], room(console)))
    hanging(console, "Note", flow(given.notes, room(console)))
    hanging(console, "With", flow([given.source], room(console)))


def _units(console: Console, given: ModuleView) -> Table:
    """Blocks that plans shard and recompute one by one, and the rest."""
    formats = list(dict.fromkeys(name for unit in given.units for name in unit.kept_bytes))
    heads = (("units", "text"), ("", "right"), ("parameters", "right"), ("FLOP", "right"))
    kept = tuple((f"kept, {name}", "right") for name in formats)
    table = table_of(console, (*heads, *kept))
    for each in given.units:
        add_row(table, *_unit(each), *(show_bytes(each.kept_bytes[name]) for name in formats))
    return table


def _unit(each: UnitView) -> tuple[str, ...]:
    return one_line(each.name), _times(each.count), short(each.parameters), short(each.flop)


def _modules(console: Console, given: ModuleView) -> Table:
    heads = (("modules", "text"), ("", "right"), ("parameters", "right"), ("FLOP", "right"))
    table = table_of(console, (*heads, (f"kept, {given.format}", "right")))
    deep = DEEPEST
    while len(_shown(given, deep)) > MOST_ROWS and deep > 1:
        deep -= 1
    shown = _shown(given, deep)
    for each in shown[:MOST_ROWS]:
        name = f"{one_line(each.name)} {each.kind}"
        add_row(
            table,
            name,
            _times(each.count),
            short(each.parameters),
            short(each.flop),
            show_bytes(each.kept_bytes),
        )
    return table


def _shown(given: ModuleView, deep: int) -> list[SubModuleView]:
    """Modules with parameters or work, down to a depth."""
    has = (each for each in given.modules if each.parameters or each.flop)
    return [each for each in has if each.name.count(".") < deep]


def _times(number: int) -> str:
    return f"{count(number)} x" if number > 1 else ""
