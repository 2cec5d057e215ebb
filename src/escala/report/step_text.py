"""A step that ran here, for people: what it is, how long it takes, what it holds, what practices buy."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.measurement.job.record import HeldMemory, StepRun, Tried, WhatIf
from escala.measurement.job.spread import Spread
from escala.measurement.sampling.usage import NodeUsage
from escala.report.layout import (
    QUIET,
    STRONG,
    add_row,
    flow,
    folded,
    hanging,
    put,
    put_table,
    room,
    table_of,
    width_of,
)
from escala.report.numbers import count, plural, seconds, short, span
from escala.units import digits, percent, show_bytes, show_si

STYLES: Final = {"faster": "green", "slower": "red", "failed": "red"}
MOST_RANKS: Final = 8
SLOW_FIRST_S: Final = 3.0
RATIOS: Final = "Speed is the median of the ratios within a round, not the ratio of the medians."
SAME_LOSS: Final = 1e-5
"""A relative difference that another order of sums makes in fp32 (6e-8 for one sum, over thousands)."""


def print_step(console: Console, given: StepRun) -> None:
    """What ran, its time, its memory, and what it used of the machine."""
    for each in flow(_what(given), width_of(console)):
        put(console, each)
    put(console)
    hanging(console, "Step", flow(_time(given), room(console)), style=STRONG)
    hanging(console, "Memory", flow(_memory(given), room(console)), style=STRONG)
    used = [line for node in given.usage[:MOST_RANKS] for line in flow(_used(node), room(console))]
    more = len(given.usage) - MOST_RANKS
    hanging(console, "Used", [*used, *flow([f"{more} more ranks in --json"] if more > 0 else [], 80)], STRONG)
    hanging(console, "Note", [line for each in given.notes for line in flow([each], room(console))])
    put(console)


def print_what_if(console: Console, given: WhatIf) -> None:
    """One line for each practice beside the plain step."""
    rounds = f"{given.rounds} round{plural(given.rounds)} of {given.steps} steps each, in turn"
    put(console, Text.assemble(("What each practice buys", STRONG), (f" ({rounds})", QUIET)))
    table = table_of(
        console, (("", "text"), ("step", "right"), ("speed", "right"), ("peak", "right"), ("loss", "right"))
    )
    add_row(table, "as it is", *_measured(given.plain), _loss(given.plain))
    for each in given.tried:
        if each.step_s is not None:
            add_row(table, _title(each), *_measured(each), _loss(each))
    put_table(console, table)
    for line in folded(Text(RATIOS, style=QUIET), width_of(console)):
        put(console, line)
    failed = [f"{each.title}: {one_line(each.why, 300)}" for each in given.tried if each.step_s is None]
    slow = [
        f"{each.title}: the first step took {seconds(each.first_step_s)}"
        for each in given.tried
        if each.step_s is not None and each.first_step_s is not None and each.first_step_s > SLOW_FIRST_S
    ]
    hanging(console, "Once", [line for each in slow for line in flow([each], room(console))], style=STRONG)
    hanging(console, "Not", [line for each in failed for line in flow([each], room(console))], style=STRONG)


def _what(given: StepRun) -> Iterator[Text | str]:
    yield Text(one_line(given.target), style=STRONG)
    yield one_line(given.model or "")
    yield "" if given.parameters is None else f"{short(given.parameters)} parameters"
    yield given.optimizer or ""
    yield given.precision or ""
    yield "recomputes" if given.recomputes else ""
    yield f"{given.device}, {given.threads} thread{plural(given.threads)}" if given.threads else given.device
    yield f"{count(given.ranks)} ranks, {given.parallelism}" if given.ranks > 1 else ""
    yield "" if given.samples is None else f"{count(given.samples)} sample{plural(given.samples)} a rank"
    yield "" if given.tokens is None else f"{count(given.tokens)} tokens a rank"
    yield Text("interrupted", style="yellow") if given.is_interrupted else ""


def _time(given: StepRun) -> Iterator[str]:
    yield f"{seconds(given.step_s.median)} {_interval(given.step_s)}".rstrip()
    yield f"{given.step_s.samples} step{plural(given.step_s.samples)}"
    yield "" if given.rate_per_s is None else f"{digits(given.rate_per_s)} {given.unit}/s"
    yield "" if given.flop is None else show_si(given.flop, "FLOP")


def _interval(given: Spread) -> str:
    return "" if given.low is None or given.high is None else span(given.low, given.high, seconds)


def _memory(given: StepRun) -> Iterator[str]:
    yield "" if given.peak_bytes is None else f"peak {show_bytes(given.peak_bytes)}"
    for name in HeldMemory.__slots__:
        held = 0.0 if given.memory is None else float(getattr(given.memory, name))
        if held and name != "peak_bytes":
            yield f"{name.removesuffix('_bytes')} {show_bytes(held)}"


def _used(node: NodeUsage) -> Iterator[str]:
    yield "" if node.rank is None else f"{one_line(node.node)} rank {node.rank}"
    yield "" if node.busy_cores is None else f"{digits(node.busy_cores.mean, 2)} of {node.cores} cores"
    yield "" if node.resident_bytes is None else f"{show_bytes(node.resident_bytes.peak)} resident"
    for gpu in node.gpus:
        yield "" if gpu.busy_share is None else f"GPU {gpu.index} busy {percent(gpu.busy_share.mean)}"
        yield "" if gpu.power_w is None else show_si(gpu.power_w.mean, "W")


def _title(given: Tried) -> Text:
    """The practice with its verdict."""
    verdict = Text(given.verdict, style=STYLES.get(given.verdict, QUIET))
    return Text.assemble(given.title, (": ", QUIET), verdict)


def _measured(given: Tried) -> tuple[str, str, str]:
    assert given.step_s is not None
    peak = "" if given.peak_bytes is None else show_bytes(given.peak_bytes)
    return seconds(given.step_s.median), "" if given.gain is None else _gain(given.gain), peak


def _gain(given: Spread) -> str:
    """How many times as fast, with the interval."""
    ends = "" if given.low is None or given.high is None else f" ({given.low:.2f} to {given.high:.2f})"
    return f"× {given.median:.2f}{ends}"


def _loss(given: Tried) -> str:
    if given.loss_change is None:
        return "" if given.loss is None else f"{given.loss:.4g}"
    if abs(given.loss_change) < SAME_LOSS:
        return "same"
    return f"{given.loss_change * 100:+.2g} %".replace("-", "−")
