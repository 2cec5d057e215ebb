"""A run beside its plan for people: each quantity predicted, recorded, and whether the interval holds it."""

from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.measurement.verify import Compared, Verified
from escala.report.layout import QUIET, STRONG, apart, flow, glued, hanging, put, room
from escala.report.numbers import count, energy, in_percent, seconds
from escala.units import digits, show_bytes

SHOW: Final[dict[str, Callable[[float], str]]] = {
    "s": seconds,
    "bytes": show_bytes,
    "J": energy,
    "tokens/s": lambda value: f"{digits(value)} tok/s",
    "samples/s": lambda value: f"{digits(value)} samples/s",
}


def print_verified(console: Console, given: Verified) -> None:
    """Everything that `escala verify` shows."""
    where = f"{count(given.devices)} × {given.accelerator}"
    put(console, f"{one_line(given.network)} on {where}: {glued(given.plan_title)}")
    inside = sum(each.is_inside for each in given.compared)
    total = len(given.compared)
    line = f"{inside} of {total} recorded quantit{'y' if total == 1 else 'ies'} in the 80 % interval"
    put(console, Text(line if total else "Nothing of this run can be compared", style=STRONG))
    put(console)
    for each in given.compared:
        _print_compared(console, each)
    hanging(console, "Absent", flow(given.missing, room(console)))
    hanging(console, "Own", flow(given.own, room(console)))
    hanging(console, "Note", flow(given.notes, room(console)))


def _print_compared(console: Console, given: Compared) -> None:
    show = SHOW[given.unit]
    right = Text(f"error {in_percent(given.error, '+')} %, ")
    right.append("inside" if given.is_inside else "outside", style="green" if given.is_inside else "red")
    apart(console, Text(given.quantity), right, indent=2)
    interval = f"predicted {show(given.predicted)} (80 %: {show(given.low)} to {show(given.high)})"
    source = f"recorded {show(given.recorded)}" + (f" ({one_line(given.origin)})" if given.origin else "")
    for line in flow([Text(interval, style=QUIET), Text(source, style=QUIET)], room(console)):
        put(console, line, indent=4)
