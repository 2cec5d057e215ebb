"""A traced step beside the formula, for people."""

from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from escala.measurement.tracing.beside import Beside
from escala.report.layout import QUIET, STRONG, add_row, flow, hanging, put, put_table, room, table_of
from escala.report.numbers import count, in_percent, plural
from escala.report.trace_view import TracedRankView, TraceView
from escala.units import GIB

KINDS: Final = {
    "weights": "weights, with casts",
    "gathered": "gathered for layers",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations, at work",
}
PHASES: Final = {"loss": "most until the loss", "backward": "most in backward", "step": "most in the step"}
SENT: Final = {
    "tensor": "sent, tensor ranks",
    "sharding": "sent, sharding",
    "replicas": "sent, replicas",
}


def print_trace(console: Console, given: TraceView) -> None:
    """Everything that a trace adds to an explanation."""
    peak = given.peak
    title = f"Traced without hardware: {_gib(peak.traced)} GiB in use, formula {_gib(peak.formula)}"
    put(console, Text(f"{title} GiB ({_error(peak)})", style=STRONG))
    table = table_of(
        console,
        (
            ("at the peak", "left"),
            ("traced", "right"),
            ("formula", "right"),
            ("error", "right"),
            ("", "text"),
        ),
    )
    for each in given.kinds:
        _row(table, KINDS[each.name], each, _gib, "GiB")
    for each in given.phases:
        _row(table, PHASES[each.name], each, _gib, "GiB")
    for each in given.sent:
        _row(table, SENT[each.name], each, _gb, "GB a device")
    _row(table, "FLOP, all devices", given.flop, _pflop, "PFLOP")
    put_table(console, table)
    width = room(console)
    hanging(console, "When", flow([f"trace: {given.moment}", f"formula: {given.formula_phase}"], width))
    for rank in given.ranks:
        hanging(console, "Rank", flow(_rank(rank), width))
    own = f"in use by the plan's own engine: predicted {_gib(given.predicted_bytes)} GiB"
    hanging(console, "Plan", flow([own], width))
    hanging(console, "Absent", flow(given.not_traced, width))
    hanging(console, "With", flow([f"{name} {version}" for name, version in given.libraries.items()], width))
    put(console)


def _row(table: Table, title: str, each: Beside, show: Callable[[float], str], unit: str) -> None:
    add_row(table, title, show(each.traced), show(each.formula), _error(each), Text(unit, style=QUIET))


def _rank(given: TracedRankView) -> list[str]:
    """A pipeline rank: its peak, and its collectives of a step."""
    alike = f" ({given.alike} alike)" if given.alike > 1 else ""
    when = f"{_gib(given.peak.traced)} GiB in {given.moment}, formula {_gib(given.peak.formula)}"
    peak = f"{given.rank}{alike}: {when}"
    totals: dict[tuple[str, str], float] = {}
    for each in given.collectives:
        key = each.operation, each.axis
        totals[key] = totals.get(key, 0.0) + each.count
    return [
        peak,
        *(
            f"{count(number)} {name}{plural(round(number))} ({axis})"
            for (name, axis), number in totals.items()
        ),
    ]


def _error(each: Beside) -> str:
    return "" if each.error is None else f"{in_percent(each.error, '+')} %"


def _gib(value_bytes: float) -> str:
    return f"{value_bytes / GIB:,.2f}"


def _pflop(value: float) -> str:
    return f"{value / 1e15:,.2f}"


def _gb(value_bytes: float) -> str:
    return f"{value_bytes / 1e9:,.2f}"
