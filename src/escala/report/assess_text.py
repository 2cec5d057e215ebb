"""An assessment for people: verdict, flip points, options side by side, criteria, levers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.federated.assess import Assessment, Taken, Week
from escala.federated.criteria import Criterion, Gauge
from escala.federated.flips import FARTHEST, Flip
from escala.federated.levers import Lever
from escala.federated.ranges import Range
from escala.federated.sites import Way
from escala.federated.verdict import Verdict
from escala.report.layout import QUIET, STRONG, add_row, folded, hanging, put, put_table, room, table_of
from escala.report.numbers import count, energy, mass, money, seconds, short, traffic_energy
from escala.units import digits, percent, show_si

NOTHING: Final = "–"
STYLES: Final = {
    Verdict.FEDERATE: "bold green",
    Verdict.CENTRALISE: "bold yellow",
    Verdict.ALONE: "bold yellow",
    Verdict.UNDECIDED: "bold magenta",
    Verdict.NONE: "bold red",
}
TITLES: Final = {"federated": "federated", "central": "central", "alone": "each alone"}


def size(value_bytes: float) -> str:
    """Bytes for people, decimal."""
    return show_si(value_bytes, "B") if value_bytes else "0 B"


MEASURES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("bytes", "traffic_bytes", size),
    ("time", "time_s", seconds),
    ("energy", "energy_j", energy),
    ("CO2e", "carbon_kg", mass),
    ("money", "money_usd", money),
)
UNITS: Final[dict[str, Callable[[float], str]]] = {
    "bytes_per_s": lambda value: show_si(value, "B/s"),
    "weights": short,
    "bytes": size,
    "rounds": digits,
    "j_per_byte": traffic_energy,
    "clients": count,
    "s": seconds,
    "times": lambda value: f"{digits(value)} times",
}


def print_assessment(console: Console, given: Assessment) -> None:
    """Everything that `escala federate assess` shows."""
    put(console, Text(one_line(given.scenario), style=STRONG))
    put(console, Text(headline(given), style=QUIET))
    put(console)
    said = Text(f"  {given.verdict}", style=STYLES[given.verdict])
    put(console, said.append(leaning(given), QUIET))
    for each in given.reasons:
        _folded(console, each)
    put(console)
    _print_flips(console, given)
    _print_options(console, given)
    _print_criteria(console, given)
    _print_levers(console, given)
    _print_sites(console, given)
    _print_week(console, given)
    for label, lines in (("Unsaid", given.unsaid), ("Note", given.notes), ("Taken", given.assumed)):
        hanging(console, label, [part for each in lines for part in folded(Text(each), room(console))])


def headline(given: Assessment) -> str:
    """Model, clients, data of a client beside the break-even, one round."""
    even = "never" if given.break_even_bytes is None else size(given.break_even_bytes.mid)
    parts = [
        one_line(given.model),
        f"{given.clients:,} clients with {size(given.data_bytes)} each (break-even {even})",
    ]
    if given.round.round_s is not None:
        asked = f"{count(given.round.asked)} asked, {digits(given.round.counted.mid)} count"
        parts.append(f"a round: {asked}, {seconds(given.round.round_s.mid)}")
    return " · ".join(parts)


def leaning(given: Assessment) -> str:
    """Which way an undecided verdict leans."""
    if given.verdict is not Verdict.UNDECIDED:
        return ""
    return f" within the ranges; the middle of everything says {given.leaning}"


def spread(given: Range | None, show: Callable[[float], str]) -> tuple[str, str]:
    """The middle, and the ends in words; a dash where nobody knows it."""
    if given is None:
        return NOTHING, ""
    if given.low == given.high:
        return show(given.mid), ""
    low, high = show(given.low), show(given.high)
    number, _, unit = low.partition(" ")
    return show(given.mid), f"{number if high.endswith(f' {unit}') else low} to {high}"


def flip_text(given: Flip) -> str:
    """Below and above which values the middle case chooses otherwise."""
    show = UNITS[given.unit]
    parts = []
    if given.below is not None:
        parts.append(f"below {show(given.below)}: {given.below_becomes}")
    if given.above is not None:
        parts.append(f"above {show(given.above)}: {given.above_becomes}")
    return "; ".join(parts) or f"no flip within 1/{FARTHEST:,.0f} to {FARTHEST:,.0f} times"


def _print_flips(console: Console, given: Assessment) -> None:
    put(console, Text(f"Where '{given.leaning}' flips, one input at a time", style=STRONG))
    table = table_of(console, (("input", "left"), ("now", "right"), ("the middle says otherwise", "text")))
    for each in given.flips:
        add_row(table, each.name, UNITS[each.unit](each.now), flip_text(each))
    put_table(console, table)


def _print_options(console: Console, given: Assessment) -> None:
    put(console, Text("Options from start to target: middle, and ends", style=STRONG))
    heads = [("", "left"), *((TITLES[each.option], "right") for each in given.options)]
    table = table_of(console, heads)
    for name, field, show in MEASURES:
        cells = [spread(getattr(each, field), show) for each in given.options]
        if any(middle != NOTHING for middle, _ in cells):
            add_row(table, name, *(middle for middle, _ in cells))
            add_row(table, "", *(Text(ends, style=QUIET) for _, ends in cells))
    put_table(console, table)
    for each in given.options:
        for line in (*privacy_lines(each), phase_line(each)):
            _folded(console, line)
    put(console)


def privacy_lines(given: Taken) -> Iterator[str]:
    """What leaves a client under an option, and what protects it."""
    protected = f"; protection: {given.protects}" if given.protects else ""
    yield f"leaves a client, {TITLES[given.option]}: {given.leaves}{protected}"


def phase_line(given: Taken) -> str:
    """Energy by phase, middle."""
    parts = [f"{name} {energy(each.mid)}" for name, each in given.phase_j.items() if each.mid]
    return f"energy, {TITLES[given.option]}: {', '.join(parts)}"


def gauge_text(given: Gauge) -> str:
    """A number beside its threshold."""
    sign = "at most" if given.is_below else "above"
    return f"{digits(given.value)} ({sign} {given.threshold:g})"


def criterion_rows(given: Criterion) -> Iterator[tuple[str, str, str, str]]:
    """One row a gauge: whether the criterion holds, its name, number with threshold, what it is and whence.

    Of several gauges one is enough; each says whether it is met, and rows after the first begin with "or".
    """
    is_several = len(given.gauges) > 1
    for place, each in enumerate(given.gauges):
        holds, name = (("yes" if given.holds else "no"), given.name) if place == 0 else ("", "or")
        met = ("met: " if each.holds else "not met: ") if is_several else ""
        yield holds, name, gauge_text(each), f"{met}{each.what}; {each.origin}"


def _print_criteria(console: Console, given: Assessment) -> None:
    for side in ("for", "against"):
        put(console, Text(f"What speaks {side} federating", style=STRONG))
        table = table_of(console, (("", "left"), ("criterion", "text"), ("number", "right"), ("is", "text")))
        for criterion in given.criteria:
            if criterion.side == side:
                for row in criterion_rows(criterion):
                    add_row(table, *row)
        put_table(console, table)


def lever_row(given: Lever) -> tuple[str, str, str, str, str, str]:
    """Name, rounds, bytes, time, energy as factors of today's, and the verdict."""
    factors = (given.rounds_factor, given.bytes_ratio, given.time_ratio, given.energy_ratio)
    rounds, sent, time, joules = (f"× {digits(each)}" for each in factors)
    return given.name, rounds, sent, time, joules, str(given.becomes)


def _print_levers(console: Console, given: Assessment) -> None:
    if given.levers:
        put(console, Text("What would change it", style=STRONG))
        heads = ("lever", "rounds", "bytes", "time", "energy", "then")
        table = table_of(console, [(each, "text" if each == "lever" else "right") for each in heads])
        for each in given.levers:
            add_row(table, *lever_row(each))
        put_table(console, table)


def way_row(given: Way) -> tuple[str, str, str, str, str]:
    """Name, exchanges, their share of the time, time, bytes that a site sends."""
    return (
        given.name,
        count(given.exchanges),
        percent(given.exchange_share),
        seconds(given.time_s),
        size(given.site_bytes),
    )


def _print_sites(console: Console, given: Assessment) -> None:
    if given.sites:
        put(console, Text("Between so few sites, data where they are", style=STRONG))
        heads = ("way", "exchanges", "of the time", "time", "a site sends")
        table = table_of(console, [(each, "text" if each == "way" else "right") for each in heads])
        for each in given.sites:
            add_row(table, *way_row(each))
        put_table(console, table)


def week_row(given: Week) -> tuple[str, ...]:
    """Option and its costs of a week, middle."""
    cells = (spread(getattr(given, field), show)[0] for _, field, show in MEASURES)
    return TITLES[given.option], *cells


def _print_week(console: Console, given: Assessment) -> None:
    if given.week:
        put(console, Text("A week of new data", style=STRONG))
        table = table_of(console, [("", "left"), *((name, "right") for name, _, _ in MEASURES)])
        for each in given.week:
            add_row(table, *week_row(each))
        put_table(console, table)


def _folded(console: Console, line: str) -> None:
    put(console, Text(line), indent=2)


def chosen(given: Sequence[Criterion], side: str) -> int:
    """How many criteria of a side hold."""
    return sum(each.holds for each in given if each.side == side)
