"""A bench, or the ladder, for people: rates of products and memory, fitted links, what was skipped."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.formats.bench_record import Bench, Fit, LineFit, Timed
from escala.measurement.bench.ladder import Ladder, Rung
from escala.report.layout import STRONG, add_row, flow, hanging, put, put_table, room, table_of, width_of
from escala.report.numbers import count, flop_rate, gib, plural, seconds
from escala.units import percent, show_seconds, show_si

RATED: Final = (
    *("gemm", "attention", "attention backward", "convolution", "convolution backward"),
    *("passes", "memory", "transfer", "storage", "loader"),
)
TIMED: Final = ("step", "pooling", "optimizer", "launch", "distributed launch")
LINES: Final = (
    ("link", "text"),
    ("ranks", "right"),
    ("alpha", "right"),
    ("1 / beta", "right"),
    ("worst", "right"),
)


def print_bench(console: Console, given: Bench) -> None:
    """Everything that `escala bench` shows."""
    for each in flow(_header(given), width_of(console)):
        put(console, each)
    put(console)
    print_rates(console, given.timed)
    if given.lines:
        print_lines(console, given.lines)
    hanging(console, "Hidden", flow(_hidden(given), room(console)), style=STRONG)
    hanging(console, "Power", flow(_power(given), room(console)), style=STRONG)
    skips = [f"{name}: {why}" for name, why in given.skips.items() if name != "power"]
    hanging(console, "Not", [line for each in skips for line in flow([each], room(console))], style=STRONG)
    hanging(console, "Next", flow(["escala plan MODEL --cluster FILE"], room(console)), style=STRONG)


def print_rates(console: Console, timed: Sequence[Timed]) -> None:
    """One line for everything but messages: best seconds, rate, how much longer the median is."""
    table = table_of(
        console,
        (("best of the slowest rank", "text"), ("time", "right"), ("rate", "right"), ("median", "right")),
    )
    for each in timed:
        if each.part in RATED or each.part in TIMED:
            add_row(
                table,
                each.name,
                seconds(each.best_s),
                _rate(each),
                f"+{percent(each.median_s / each.best_s - 1)}",
            )
    put_table(console, table)


def print_lines(console: Console, lines: Sequence[LineFit]) -> None:
    """The fitted lines with their intervals; worst is the largest error of a line at one of its sizes."""
    table = table_of(console, LINES)
    for each in lines:
        name = f"{each.level} {each.operation}"
        add_row(
            table,
            name,
            count(each.ranks),
            _alpha(each.alpha_s),
            _beta(each.beta_s_per_byte),
            percent(each.worst_error),
        )
    put_table(console, table)


def print_ladder(console: Console, given: Ladder) -> None:
    """The rungs with their rates, each beside the first."""
    put(console, Text(f"One product of two square matrices on {given.machine}", style=STRONG))
    table = table_of(
        console, (("", "text"), ("side", "right"), ("time", "right"), ("rate", "right"), ("", "right"))
    )
    for each in given.rungs:
        if each.best_s is not None:
            add_row(table, each.name, count(each.side), seconds(each.best_s), *_rung(each))
    put_table(console, table)
    skips = [f"{each.name}: {each.skipped}" for each in given.rungs if each.skipped]
    hanging(console, "Not", [line for each in skips for line in flow([each], room(console))], style=STRONG)


def _header(given: Bench) -> Iterator[Text | str]:
    device = given.device
    yield Text(f"{count(given.ranks)} × {device.name}", style=STRONG)
    yield f"{gib(device.memory_bytes)} GiB each"
    software = "torch" if given.backend == "none" else given.backend  # none: one rank sends nothing
    yield f"{software}, {count(given.ranks_per_node)} rank{plural(given.ranks_per_node)} in a node"
    yield f"{given.rounds} round{plural(given.rounds)} in {seconds(given.elapsed_s)}"
    yield "" if given.load is None else f"load {given.load:.1f} at the start"
    yield f"fingerprint {given.fingerprint.hash}"
    yield "interrupted" if given.is_interrupted else ""


def _hidden(given: Bench) -> Iterator[str]:
    for each in given.overlaps:
        yield f"{percent(each.hidden_share)} of the shorter of products and all-reduce ({each.level})"


def _power(given: Bench) -> Iterator[str]:
    power = given.power
    yield power.counter
    yield "" if power.idle_w is None else f"idle {show_si(power.idle_w, 'W')}"
    yield "" if power.spinning_w is None else f"spinning {show_si(power.spinning_w, 'W')}"
    yield "" if power.busy_w is None else f"in products {show_si(power.busy_w, 'W')}"
    yield "" if power.collective_w is None else f"in all-reduces {show_si(power.collective_w, 'W')}"


def _rate(each: Timed) -> str:
    if each.flop_per_s is not None:
        return flop_rate(each.flop_per_s)
    return "" if each.bytes_per_s is None else show_si(each.bytes_per_s, "B/s")


def _alpha(fit: Fit) -> str:
    return f"{show_seconds(fit.value)} ({show_seconds(fit.low)} to {show_seconds(fit.high)})"


def _beta(fit: Fit) -> str:
    return show_si(1.0 / fit.value, "B/s") if fit.value > 0 else "no slope"


def _rung(each: Rung) -> tuple[str, str]:
    """Rate, and how many times that of the first rung."""
    if each.flop_per_s is None:
        return show_si(each.bytes_per_s or 0.0, "B/s"), ""
    return flop_rate(each.flop_per_s), f"{each.times_first or 0.0:,.0f} ×"
