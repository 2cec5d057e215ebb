"""A run on Flower for people: its rounds, its end, what to start where. Computes nothing."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from escala.errors import one_line
from escala.federated.roundrecord import Round
from escala.report.federated_run_view import RunDocument, StartDocument
from escala.report.layout import QUIET, STRONG, put
from escala.report.numbers import count, plural, seconds
from escala.units import show_si

SHOWN = 12


def print_run(console: Console, given: RunDocument) -> None:
    """How it ended, then the rounds, the last ones where there are many."""
    last = given.rounds[-1]
    nodes = f"{given.nodes} node{plural(given.nodes)}"
    some = f" of {count(given.clients)} clients" if given.nodes < given.clients else ""
    rounds = f"{len(given.rounds)} round{plural(len(given.rounds))}"
    put(console, Text(f"{one_line(given.name)}: {rounds} on Flower", style=STRONG))
    put(console, f"{one_line(given.learns)} on {nodes}{some}; the SuperLink calls the run completed")
    for note in given.notes:
        put(console, note)
    put(console)
    console.print(_table(given.rounds[-SHOWN:]))
    if len(given.rounds) > SHOWN:
        put(console, Text(f"the last {SHOWN} of {len(given.rounds)} rounds", style=QUIET))
    put(console)
    put(console, f"{seconds(given.rounds_s)} in rounds, {show_si(given.sent_bytes, 'B')} of weights sent")
    if given.submissions > 1:
        put(console, f"the run was submitted {given.submissions} times; each went on behind the last round")
    if given.restarted:
        put(console, f"started again: {', '.join(given.restarted)}")
    put(console, f"records and weights: {given.folder}")
    put(console, Text(f"digest of the weights: {last.weights_digest}", style=QUIET))


def print_start(console: Console, given: StartDocument) -> None:
    """What to start where, host by host; commands are not folded, so that they can be copied."""
    put(console, f"The folder {given.folder} is ready. In this order:")
    for each in given.hosts:
        put(console)
        put(console, Text(f"on {each.host}", style=STRONG))
        for line in each.commands:
            console.print(f"  {line}", soft_wrap=True)


def _table(rounds: tuple[Round, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=QUIET)
    for name in ("round", "asked", "back", "lost", "down", "up", "time", "accuracy"):
        table.add_column(name, justify="left" if name == "lost" else "right")
    for each in rounds:
        accuracy = each.metrics.get("accuracy")
        table.add_row(
            str(each.round),
            str(len(each.cohort)),
            str(len(each.returned)),
            ", ".join(f"{number} {reason}" for reason, number in each.lost.items()),
            show_si(each.down_bytes, "B"),
            show_si(each.up_bytes, "B"),
            seconds(each.round_s),
            "" if accuracy is None else f"{accuracy:.4f}",
        )
    return table
