"""A scaling study for people: each point, what is lost, what is ahead, published curves. Computes nothing."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from escala.calibration.curves import Curve
from escala.errors import one_line
from escala.model.scaling import Loss
from escala.report.layout import STRONG, add_row, folded, hanging, put, put_table, room, table_of
from escala.report.numbers import count, seconds
from escala.report.reasoning_text import MOST, saving
from escala.training.study import Ahead, Point, Scaled
from escala.units import digits, percent, show_si

NOTHING = "–"
GROWS = {
    "serial": "grows as p − 1",
    "communication": "grows as a ring's messages",
    "waiting": "grows as √(2 ln p)",
    "all together": "grows as p − 1",
}


def print_scaled(console: Console, given: Scaled) -> None:
    """Everything that `escala scale` shows."""
    put(console, Text(headline(given), style=STRONG))
    put(console)
    if given.points:
        _print_points(console, given)
        _print_lost(console, given)
    for title, heads, rows in (
        ("Ahead", ("devices", "efficiency by the fit", "by the model"), map(ahead_row, given.ahead)),
        ("Published", ("curve", "devices", "kept per doubling"), map(curve_row, given.published)),
    ):
        _print_table(console, title, heads, rows)
    for label, lines in (
        ("Fit", fit_lines(given)),
        ("Tune", tune_lines(given)),
        ("Note", given.notes),
        ("Unsaid", given.unsaid),
    ):
        hanging(console, label, [part for each in lines for part in folded(Text(each), room(console))])


def headline(given: Scaled) -> str:
    """What was scaled, on what, and how."""
    kind = "weak: the samples of a device kept" if given.is_weak else "strong: the global batch kept"
    state = "interrupted, " if given.is_interrupted else ""
    return f"Scaling of {one_line(given.network)} on {one_line(given.accelerator)} ({state}{kind})"


def _print_points(console: Console, given: Scaled) -> None:
    heads = ("devices", "step", "rate", "speed-up", "efficiency")
    table = table_of(console, [(each, "right") for each in heads])
    for each in given.points:
        add_row(
            table,
            count(each.devices),
            seconds(each.step_s),
            rate(each),
            f"{each.speedup:.2f}",
            efficiency_span(each),
        )
    put_table(console, table)


def _print_lost(console: Console, given: Scaled) -> None:
    heads = ("devices", "Karp-Flatt", "messages", "waiting", "predicted step", "efficiency")
    table = table_of(console, [(each, "right") for each in heads])
    for each in given.points:
        add_row(table, *lost_row(each))
    put_table(console, table)


def lost_row(given: Point) -> tuple[str, ...]:
    """Devices, Karp-Flatt share, shares of messages and waiting, the model's step and efficiency."""
    return (
        count(given.devices),
        NOTHING if given.serial_share is None else f"{given.serial_share:.3f}",
        share(given.communication_share),
        share(given.waiting_share),
        seconds(given.predicted_step_s),
        f"{given.predicted_efficiency:.2f}",
    )


def rate(given: Point) -> str:
    """Tokens in a second, samples where there are none."""
    if given.tokens_per_s is None:
        return f"{digits(given.samples_per_s)} samples/s"
    return show_si(given.tokens_per_s, "tok/s")


def share(value: float | None) -> str:
    """A share in percent; a dash where nobody knows it."""
    return NOTHING if value is None else percent(value)


def efficiency_span(given: Point) -> str:
    """Efficiency with the interval of its quartiles."""
    return f"{given.efficiency:.2f} ({given.efficiency_low:.2f} to {given.efficiency_high:.2f})"


def ahead_row(given: Ahead) -> tuple[str, str, str]:
    """More devices: the fit with its interval, and the model."""
    found = NOTHING if given.efficiency is None else f"{given.efficiency:.2f}"
    if given.efficiency_low is not None:
        high = "any" if given.efficiency_high is None else f"{given.efficiency_high:.2f}"
        found += f" ({given.efficiency_low:.2f} to {high})"
    model = NOTHING if given.predicted_efficiency is None else f"{given.predicted_efficiency:.2f}"
    return count(given.devices), found, model


def curve_row(given: Curve) -> tuple[str, str, str]:
    """A published curve: whose, from how many devices to how many, what a doubling keeps."""
    name = f"{one_line(given.network)} on {one_line(given.accelerator)}: {one_line(given.source)}"
    return name, f"{given.devices[0]:,} to {given.devices[-1]:,}", f"{given.per_doubling:.3f}"


def _print_table(
    console: Console, title: str, heads: tuple[str, str, str], rows: Iterator[tuple[str, str, str]]
) -> None:
    found = list(rows)
    if not found:
        return
    put(console, Text(title, style=STRONG))
    first = "text" if heads[0] == "curve" else "right"
    table = table_of(console, ((heads[0], first), (heads[1], "right"), (heads[2], "right")))
    for each in found:
        add_row(table, *each)
    put_table(console, table)


def tune_lines(given: Scaled) -> list[str]:
    """The largest gains of settings on the most devices, in use and not."""
    used = [saving(each) for each in given.settings if each.is_used][:MOST]
    others = [saving(each) for each in given.settings if not each.is_used][:MOST]
    lines = [f"in use: {' · '.join(used)}"] if used else []
    return [*lines, f"not yet: {' · '.join(others)}"] if others else lines


def fit_lines(given: Scaled) -> list[str]:
    """What each cause takes of a device's time at the first point, and adds with p."""
    if given.fit is None:
        return []
    lines = [_loss_line(each) for each in given.fit.losses]
    return [*lines, f"p = devices / {given.points[0].devices}; shares of the first point's device-seconds"]


def _loss_line(given: Loss) -> str:
    error = "" if given.share_error is None else f" ± {given.share_error:.4f}"
    grows = f"+ {given.share:.4f}{error}, {GROWS[given.cause]}"
    return f"{given.cause}: {percent(given.first_share)} at first, {grows}"
