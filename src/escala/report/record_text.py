"""A RunRecord for people: step time first, then rates, memory, power, ranks, files, and what is missing."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.measurement.runrecord import Figure, LogFile, Metered, Power, RankTime, RunRecord, StepTimes
from escala.report.layout import QUIET, STRONG, Chunk, flow, hanging, put, room
from escala.report.numbers import count, energy, flop_rate, gib, plural, seconds, span
from escala.report.usage_text import usage_parts, usage_title
from escala.units import digits, percent

MOST_RANKS: Final = 5
MOST_NODES: Final = 4


def print_record(console: Console, given: RunRecord) -> None:
    """Everything that `escala record` shows."""
    put(console, _title(given))
    put(console, Text(step_line(given.step), style=STRONG if given.step else QUIET))
    _part(console, "Rate", rate_parts(given))
    _part(console, "Memory", [f"{gib(p.peak_bytes)} GiB {p.counter}{_of(p.lane)}" for p in given.memory])
    _part(console, "Energy", _power(given.power) + [_metered(each) for each in given.metered])
    _part(console, "Ranks", rank_parts(given.ranks))
    for usage in given.usage[:MOST_NODES]:
        _part(console, "Node", [usage_title(usage)])
        for label, chunks in usage_parts(usage):
            _part(console, label, chunks)
    if len(given.usage) > MOST_NODES:
        _part(console, "Node", [f"and {count(len(given.usage) - MOST_NODES)} more"])
    _part(console, "Files", [_file(each) for each in given.sources])
    _part(console, "Left", left_out(given.sources))
    _part(console, "Unsaid", list(given.unsaid))
    _part(console, "Note", list(given.notes))


def _part(console: Console, label: str, chunks: Sequence[Chunk]) -> None:
    hanging(console, label, flow(chunks, room(console)))


def _title(given: RunRecord) -> str:
    tools = ", ".join(dict.fromkeys(each.tool for each in given.sources))
    steps = "" if given.last_step is None else f", up to step {count(given.last_step)}"
    when = "" if given.began is None else f", {given.began} to {given.ended}".replace("T", " ")
    devices = "" if given.devices is None else f" on {count(given.devices)} device{plural(given.devices)}"
    return f"One run{devices}, read from {tools}{steps}{when}"


def step_line(given: StepTimes | None) -> str:
    """The step time in one line."""
    if given is None:
        return "Step time: not in these files"
    if given.samples == 1 and not given.warmup_samples:
        return f"Step time: {seconds(given.median_s)} ({given.how})"
    middle = span(given.low_quartile_s, given.high_quartile_s, seconds)
    return (
        f"Step time: median {seconds(given.median_s)}, middle half {middle}, of {count(given.samples)} "
        f"sample{plural(given.samples)} after {count(given.warmup_samples)} of warm-up ({given.how})"
    )


def rate_parts(given: RunRecord) -> list[Chunk]:
    """Every rate that is known."""
    per_s = (
        (given.tokens_per_s, "tok/s"),
        (given.tokens_per_s_per_device, "tok/s a device"),
        (given.samples_per_s, "samples/s"),
        (given.samples_per_s_per_device, "samples/s a device"),
    )
    parts: list[Chunk] = [f"{digits(each.value)} {unit}{_derived(each)}" for each, unit in per_s if each]
    flop, mfu = given.flop_per_s_per_device, given.mfu
    parts += [f"{flop_rate(flop.value)} a device"] if flop else []
    return parts + ([f"MFU {percent(mfu.value)} as logged"] if mfu else [])


def _derived(given: Figure) -> str:
    return "" if given.origin == "logged" else f" ({given.origin})"


def _of(lane: str) -> str:
    return f" ({one_line(lane)})" if lane else ""


def _power(given: Power | None) -> list[Chunk]:
    if given is None:
        return []
    every = "1 device" if given.devices == 1 else f"{count(given.devices)} devices together"
    mean = f"mean {digits(given.mean_w)} W of {every}"
    if given.energy_j is None or given.duration_s is None:
        return [mean, f"{count(given.samples)} samples without a time, so no energy"]
    which = "from warm-up to the last step" if given.is_run else "in all samples"
    return [mean, f"{energy(given.energy_j)} in {seconds(given.duration_s)} {which}"]


def _metered(given: Metered) -> str:
    what = f"{count(given.devices)} device{plural(given.devices)}" if given.devices else f"the {given.scope}"
    lasted = "" if given.duration_s is None else f" in {seconds(given.duration_s)}"
    return f"{energy(given.energy_j)} of {what}{lasted} ({given.tool})"


def rank_parts(given: Sequence[RankTime]) -> list[Chunk]:
    """The slowest rank, and the stragglers by name."""
    if not given:
        return []
    slow = [f"{one_line(each.rank)} {seconds(each.median_s)}" for each in given if each.is_straggler]
    more = f", and {count(len(slow) - MOST_RANKS)} more" if len(slow) > MOST_RANKS else ""
    named = ", ".join(slow[:MOST_RANKS]) + more
    return [
        f"{count(len(given))}, the slowest counts: {one_line(given[0].rank)}",
        f"stragglers: {named}" if slow else "no straggler",
    ]


def _file(given: LogFile) -> str:
    name = one_line(PurePath(given.path).name or given.path)
    return f"{name} ({given.tool}, {count(given.numbers)} numbers)"


def left_out(given: Sequence[LogFile]) -> list[Chunk]:
    """What was not read, by file and reason."""
    return [
        f"{one_line(PurePath(each.path).name)}: {count(times)} × {reason}"
        for each in given
        for reason, times in each.left_out.items()
    ]
