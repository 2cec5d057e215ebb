"""A profile for people: the verdict, what to change, the step by phase and by what it waits for, the rest."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.measurement.profile.predicted import COMMUNICATION
from escala.measurement.profile.record import (
    Arrival,
    Beside,
    Change,
    Phases,
    Prediction,
    Profile,
    RankProfile,
    Speed,
    Steps,
    Traffic,
    Waits,
)
from escala.measurement.profile.verdict import TITLES
from escala.report.layout import (
    QUIET,
    STRONG,
    add_row,
    apart,
    flow,
    folded,
    glued,
    hanging,
    put,
    put_table,
    room,
    table_of,
    width_of,
)
from escala.report.numbers import bar, count, flop_rate, in_percent, plural, seconds, span
from escala.report.step_text import print_step, print_what_if
from escala.units import percent, show_bytes, show_si

PHASES: Final = {
    "data_s": "loading data",
    "forward_s": "forward",
    "backward_s": "backward",
    "communication_s": "communication, exposed",
    "optimizer_s": "optimizer",
    "idle_s": "idle",
}
WAITS: Final = {f"{kind}_s": title for kind, title in TITLES.items()}
MOST_RANKS: Final = 8


def print_profile(console: Console, given: Profile) -> None:
    """Everything that `escala profile` shows."""
    rank = given.critical
    if given.run is not None:
        print_step(console, given.run)
    for each in flow(_title(given), width_of(console)):
        put(console, each)
    put(console, Text(given.verdict.told, style=STRONG))
    put(console)
    _print_shares(console, "phase", PHASES, rank.phases, rank.step_s)
    _print_shares(
        console, "waits for", {f"{key}_s": name for key, name in TITLES.items()}, rank.waits, rank.step_s
    )
    _print_changes(console, given.verdict.changes)
    if given.predicted is not None:
        step_s = rank.step_s if given.run is None else given.run.step_s.median
        _print_predicted(console, given.predicted, step_s)
    for label, chunks in (
        ("Sent", [_traffic(each) for each in rank.traffic]),
        ("Hidden", _hidden(rank)),
        ("Speed", list(_speed(given.speed))),
        ("Pieces", _pieces(rank)),
        ("Memory", _memory(rank)),
        ("Ranks", _ranks(given.arrivals)),
        ("Unsaid", list(given.unsaid)),
        ("Note", list(given.notes)),
    ):
        hanging(console, label, flow(chunks, room(console)))
    if given.run is not None and given.run.what_if is not None:
        put(console)
        print_what_if(console, given.run.what_if)


def _title(given: Profile) -> Iterator[str]:
    read, size = len(given.ranks), given.run_ranks or 1
    ranks = f"{count(read)} of {count(size)} ranks" if read != size else f"{count(size)} rank{plural(size)}"
    yield ranks if given.backend is None else f"{ranks} over {one_line(given.backend)}"
    yield "" if given.device is None else one_line(given.device)
    yield _steps(given.steps)
    yield "" if read == 1 else f"rank {given.critical_rank}, which waits least, decides"


def _steps(given: Steps) -> str:
    mean_s = sum(given.each_s) / given.count
    range_ = f" {span(min(given.each_s), max(given.each_s), seconds)}" if given.count > 1 else ""
    return f"{count(given.count)} step{plural(given.count)} of {seconds(mean_s)}{range_} by {given.how}"


def _time(value_s: float) -> str:
    return seconds(value_s) if value_s else "0"


def _print_shares(
    console: Console, head: str, titles: dict[str, str], parts: Phases | Waits, step_s: float
) -> None:
    """One line for each part of the step with its share."""
    table = table_of(console, ((head, "text"), ("time", "right"), ("share", "right"), ("", "left")))
    for each in fields(parts):
        value_s = getattr(parts, each.name)
        share = value_s / step_s
        add_row(table, titles[each.name], seconds(value_s) if value_s else "0", percent(share), bar(share))
    put_table(console, table)


def _print_changes(console: Console, given: Sequence[Change]) -> None:
    """What to change, in order, each with what it could save at most."""
    if not given:
        return
    put(console, Text("What to change first, and the share of the step that it could save at most"))
    for number, each in enumerate(given, start=1):
        share = Text(percent(each.at_most_share), style=STRONG)
        apart(console, Text(each.what), share, indent=5, label=f"  {number}. ")
        for line in folded(Text(each.why, style=QUIET), room(console)):
            put(console, line, indent=5)
    put(console)


def _print_predicted(console: Console, given: Prediction, step_s: float) -> None:
    """Each part predicted and measured, with the predicted terms in it."""
    put(console, f"Beside the prediction for {one_line(given.network)}, {glued(given.plan_title)}")
    for each in given.parts:
        _print_beside(console, Text(each.part), each.predicted_s, each.measured_s, each.error)
        terms = [f"{term.title} {seconds(term.predicted_s)}" for term in each.terms]
        for line in flow(terms, room(console)):
            line.stylize(QUIET)
            put(console, line, indent=4)
        if each.part == COMMUNICATION:
            _print_axes(console, given.axes)
    whole = Text(f"step, 80 % {span(given.low_s, given.high_s, seconds)}", style=STRONG)
    _print_beside(console, whole, given.step_s, step_s, given.error)
    put(console)


def _print_axes(console: Console, given: Sequence[Beside]) -> None:
    """Exposed messages of each axis, where there are several."""
    for each in given if len(given) > 1 else ():
        measured = _time(each.measured_s or 0.0)
        put(console, f"{each.part}: predicted {_time(each.predicted_s)}, measured {measured}", indent=4)


def _print_beside(
    console: Console, part: Text, predicted_s: float, measured_s: float | None, error: float | None
) -> None:
    off = "" if error is None else f"error {in_percent(error, '+')} %"
    measured = "not measured" if measured_s is None else f"measured {_time(measured_s)}"
    apart(console, part, Text(off), indent=2)
    for line in flow([f"predicted {_time(predicted_s)}", measured], room(console)):
        put(console, line, indent=4)


def _speed(given: Speed | None) -> Iterator[str]:
    if given is None:
        return
    yield f"{flop_rate(given.flop_per_s)} in products"
    if given.peak_flop_per_s is not None:
        peak = f"{flop_rate(given.peak_flop_per_s)} in {given.number_format}"
        yield f"peak {peak} ({one_line(given.device or '')})"
    yield "" if given.hfu is None else f"HFU {percent(given.hfu)}"
    yield "" if given.mfu is None else f"MFU {percent(given.mfu)}"


def _pieces(rank: RankProfile) -> list[str]:
    given = rank.launches
    if not given.count:
        return []
    gap = f"{seconds(given.gap_s)} of calling between" if given.gap_s else "no calling between"
    return [f"{count(given.count)} a step", f"mean {seconds(given.mean_s)}", gap]


def _traffic(given: Traffic) -> str:
    """One collective of a group in a line."""
    among = "" if given.ranks is None else f", {count(given.ranks)} ranks"
    where = "" if given.group is None else f" ({one_line(given.group)}{among})"
    size = "unknown bytes" if given.payload_bytes is None else show_bytes(given.payload_bytes)
    rate = "" if given.bus_bytes_per_s is None else f", bus {show_si(given.bus_bytes_per_s, 'B/s')}"
    times = f"{given.messages:,.4g} time{plural(round(given.messages))}"
    exposed = f"{_time(given.exposed_s)} exposed"
    took = f"{size} in {seconds(given.message_s)}, {exposed}"
    return f"{given.operation}{where} {times}: {took}{rate}"


def _hidden(rank: RankProfile) -> list[str]:
    if not rank.message_s:
        return []
    hidden, whole = percent(rank.hidden_s / rank.message_s), seconds(rank.message_s)
    return [f"{hidden} of {whole} in messages is behind other work"]


def _memory(rank: RankProfile) -> list[str]:
    return [
        f"peak {show_bytes(each.allocated_bytes)} in the trace on {each.device}"
        + ("" if each.reserved_bytes is None else f", {show_bytes(each.reserved_bytes)} reserved")
        for each in rank.memory
    ]


def _ranks(given: Sequence[Arrival]) -> list[str]:
    """Who comes late to collectives, the most first."""
    if not given:
        return []
    ordered = sorted(given, key=lambda each: -each.late_s)[:MOST_RANKS]
    waits = [f"rank {each.rank} {seconds(each.late_s)} late a step" for each in ordered if each.late_s > 0]
    slow = [str(each.rank) for each in given if each.is_straggler]
    return [*waits, f"straggler: {', '.join(slow)}" if slow else "no straggler"]
