"""A training run for people: one line a step while it runs, predicted beside measured when it is over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from time import monotonic
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from escala.errors import one_line
from escala.measurement.cause import Cause
from escala.measurement.profile.record import Prediction
from escala.measurement.verify import Compared, Verified
from escala.report.layout import (
    QUIET,
    STRONG,
    add_row,
    flow,
    folded,
    glued,
    hanging,
    put,
    put_table,
    room,
    table_of,
)
from escala.report.numbers import count, in_percent, seconds, span
from escala.report.verify_text import SHOW
from escala.training.conclude import Trained
from escala.training.steprecord import StepRecord
from escala.units import percent, show_bytes, show_si

LINE_EVERY_S: Final = 2.0
"""Seconds between lines where nothing can be drawn in place."""


@contextmanager
def live(console: Console, steps: int) -> Iterator[Callable[[StepRecord], None]]:
    """Shows each step: in place on a terminal, else a line at times; the first and the last always."""
    if console.is_terminal and not console.is_dumb_terminal:
        with console.status("starting; Ctrl-C saves and ends") as status:

            def drawn(record: StepRecord) -> None:
                status.update(Text(step_line(record, steps)))
                if record.held_out_loss is not None:
                    console.print(Text(held_out_line(record), style=QUIET))

            yield drawn
        return
    said_s = [float("-inf")]

    def line(record: StepRecord) -> None:
        is_end = record.step == steps
        if monotonic() - said_s[0] >= LINE_EVERY_S or is_end or record.held_out_loss is not None:
            said_s[0] = monotonic()
            console.print(Text(step_line(record, steps)), soft_wrap=True)
            if record.held_out_loss is not None:
                console.print(Text(held_out_line(record)), soft_wrap=True)

    yield line


def step_line(record: StepRecord, steps: int) -> str:
    """One step in a line that fits 80 columns."""
    speed = show_si(record.tokens_per_s, "tok/s")
    mfu = "" if record.mfu is None else f" MFU {percent(record.mfu)}"
    memory = "" if record.peak_bytes is None else f" {show_bytes(record.peak_bytes)}"
    left = f" {seconds(record.left_s)} left" if record.left_s >= 1 else ""
    state = " skipped" if record.is_skipped else ""
    return f"step {record.step:,}/{steps:,} loss {shown_loss(record.loss)} {speed}{mfu}{memory}{left}{state}"


def shown_loss(value: float) -> str:
    """A loss in nats, with the digits that tell runs apart."""
    return f"{value:.4f}" if isfinite(value) else str(value)


def held_out_line(record: StepRecord) -> str:
    """The loss on samples that are not learned from."""
    return f"step {record.step:,}: held-out loss {shown_loss(record.held_out_loss or 0.0)}"


def print_trained(console: Console, given: Trained) -> None:
    """Everything that `escala train` shows when a run is over."""
    put(console, Text(_headline(given), style=STRONG))
    put(console, f"{one_line(given.network)}: {glued(given.plan_title)}")
    put(console)
    if given.verified is not None:
        _print_compared(console, given.verified, None if given.profile is None else given.profile.predicted)
    for label, chunks in (
        ("Gap", cause_lines(given.cause)),
        ("Bound", [] if given.profile is None else [given.profile.verdict.told]),
        ("Batch", _noise_lines(given)),
        ("Saved", [given.checkpoint] if given.checkpoint else []),
        ("Note", list(given.notes)),
        ("Unsaid", list(given.unsaid)),
    ):
        hanging(console, label, [line for each in chunks for line in folded(Text(each), room(console))])


def _noise_lines(given: Trained) -> list[str]:
    if given.noise_batch is None:
        return []
    said, low = (count(max(round(each), 1)) for each in (given.noise_batch, given.noise_low or 0.0))
    upto = f"above {low}, no upper end" if given.noise_high is None else f"{low} to {count(given.noise_high)}"
    return [f"by the noise of the gradients, a global batch above about {said} buys little (80 %: {upto})"]


def _headline(given: Trained) -> str:
    state = "Interrupted after" if given.is_interrupted else "Trained"
    losses = [each for each in (given.first_loss, given.last_loss) if each is not None]
    loss = "" if not losses else f", loss {' to '.join(f'{each:.3f}' for each in losses)}"
    held_out = "" if given.held_out_loss is None else f" (held out {given.held_out_loss:.3f})"
    return f"{state} {count(given.steps)} steps of {count(given.samples)} samples{loss}{held_out}"


def _print_compared(console: Console, given: Verified, parts: Prediction | None) -> None:
    """Predicted, measured and error: each quantity over its interval, and under the step its parts."""
    table = table_of(
        console, (("", "text"), ("predicted", "right"), ("measured", "right"), ("error", "right"))
    )
    for each in given.compared:
        _add_compared(table, each)
        if each.quantity == "step time" and parts is not None:
            _add_parts(table, parts)
    put_table(console, table)
    inside = sum(each.is_inside for each in given.compared)
    put(console, f"{inside} of {len(given.compared)} quantities inside the 80 % interval", indent=2)
    hanging(console, "Absent", flow(given.missing, room(console)))
    hanging(console, "Own", flow(given.own, room(console)))


def _add_compared(table: Table, given: Compared) -> None:
    show = SHOW[given.unit]
    style = "green" if given.is_inside else "red"
    add_row(
        table,
        Text(given.quantity, style=STRONG),
        show(given.predicted),
        show(given.recorded),
        Text(f"{in_percent(given.error, '+')} %", style=style),
    )
    add_row(table, Text(f"  80 % {span(given.low, given.high, show)}", style=QUIET), "", "", "")


def _add_parts(table: Table, given: Prediction) -> None:
    for each in given.parts:
        if not each.predicted_s and not each.measured_s:
            continue
        error = "" if each.error is None else f"{in_percent(each.error, '+')} %"
        measured = "–" if each.measured_s is None else seconds(each.measured_s) if each.measured_s else "0"
        predicted = seconds(each.predicted_s) if each.predicted_s else "0"
        add_row(table, Text(f"  {each.part}", style=QUIET), predicted, measured, error)


def cause_lines(given: Cause | None) -> list[str]:
    """Where the largest gap lies, and what is likely behind it."""
    if given is None:
        return []
    way = "longer" if given.gap_s > 0 else "less"
    share = percent(abs(given.share))
    return [
        f"largest in {given.part}: {seconds(abs(given.gap_s))} {way} than predicted, {share} of the step; "
        f"likely {given.likely}"
    ]
