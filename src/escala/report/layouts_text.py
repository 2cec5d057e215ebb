"""Compared layouts for people: each with its verdict and how far it is from one process. Computes nothing."""

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.report.layout import QUIET, STRONG, apart, folded, glued, hanging, put, room
from escala.training.layout_list import Compared, Verdict

STYLES = {"same": "green", "refused": "yellow", "differs": "red", "failed": "red"}


def print_compared(console: Console, given: Compared) -> None:
    """Everything that `escala verify --layouts` shows."""
    same = sum(each.verdict == "same" for each in given.layouts)
    put(console, f"{one_line(given.module)}: {given.steps} steps under each layout beside one process")
    line = f"{same} of {len(given.layouts)} layouts give the same losses and weights"
    put(console, Text(line, style=STRONG))
    put(console)
    for each in given.layouts:
        apart(console, Text(glued(each.name)), Text(each.verdict, style=STYLES[each.verdict]), indent=2)
        for line in detail(each, given.tolerance):
            for part in folded(Text(line, style=QUIET), room(console)):
                put(console, part, indent=4)
    for label, lines in (("Note", given.notes),):
        hanging(console, label, [part for each in lines for part in folded(Text(each), room(console))])


def detail(given: Verdict, tolerance: float) -> list[str]:
    """How far it is, the first pass that breaks it, or why it was not compared."""
    lines = [given.reason] if given.reason else []
    far = given.difference
    if far is not None:
        numbers = f"loss {far.loss:.1e}, norm {far.norm:.1e}, weights {far.weights:.1e}"
        lines.append(f"{given.devices} ranks: {numbers} apart; {tolerance:.0e} is rounding")
    if given.first_pass is not None:
        tried = ", ".join(f"{name}: {verdict}" for name, verdict in given.tried)
        lines.append(f"the first pass that breaks it is {given.first_pass} ({tried})")
    return lines
