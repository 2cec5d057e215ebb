"""An assessment as a page that stands alone. Computes nothing."""

from collections.abc import Iterator

from escala.federated.assess import Assessment
from escala.report.assess_text import (
    MEASURES,
    NOTHING,
    TITLES,
    UNITS,
    chosen,
    criterion_rows,
    flip_text,
    headline,
    leaning,
    lever_row,
    phase_line,
    privacy_lines,
    spread,
    way_row,
    week_row,
)
from escala.report.line_plot import STYLE
from escala.report.numbers import seconds
from escala.report.page import figures, page, paragraph, section, table
from escala.units import digits


def assess_page(given: Assessment) -> str:
    """The page of an assessment."""
    return page(f"{given.scenario}: {given.verdict}", STYLE, _parts(given))


def _parts(given: Assessment) -> Iterator[str]:
    yield paragraph(f"{headline(given)}; escala {given.escala}")
    yield figures(_figures(given))
    yield from map(paragraph, given.reasons)
    yield section(
        f"Where '{given.leaning}' flips",
        table(("input", "now", "the middle says otherwise"), _flips(given)),
        "one input at a time, everything else at its middle",
    )
    heads = ("", *(TITLES[each.option] for each in given.options))
    yield section("Options", table(heads, _options(given)), "from start to target: middle, and ends")
    for each in given.options:
        yield from map(paragraph, (*privacy_lines(each), phase_line(each)))
    yield from _criteria(given)
    if given.levers:
        heads = ("lever", "rounds", "bytes", "time", "energy", "then")
        yield section("What would change it", table(heads, _levers(given)), "factors of today's, middle")
    if given.sites:
        heads = ("way", "exchanges", "of the time", "time", "a site sends")
        yield section("Between so few sites", table(heads, map(way_row, given.sites)))
    if given.week:
        heads = ("", *(name for name, _, _ in MEASURES))
        yield section("A week of new data", table(heads, map(week_row, given.week)))
    yield section("Unsaid, and taken for granted", "")
    yield from map(paragraph, (*given.unsaid, *given.notes, *given.assumed))


def _figures(given: Assessment) -> Iterator[tuple[str, str]]:
    yield "verdict", f"{given.verdict}{leaning(given).partition(';')[0]}"
    if given.score is not None:
        yield "federated / central", digits(given.score.mid)
    if given.round.round_s is not None:
        yield "a round", seconds(given.round.round_s.mid)
    yield "speak for", f"{chosen(given.criteria, 'for')} of 4"
    yield "speak against", f"{chosen(given.criteria, 'against')} of 4"


def _flips(given: Assessment) -> Iterator[tuple[str, ...]]:
    for each in given.flips:
        yield each.name, UNITS[each.unit](each.now), flip_text(each)


def _options(given: Assessment) -> Iterator[tuple[str, ...]]:
    for name, field, show in MEASURES:
        cells = [spread(getattr(each, field), show) for each in given.options]
        if any(middle != NOTHING for middle, _ in cells):
            yield name, *(f"{middle}\n{ends}" if ends else middle for middle, ends in cells)


def _criteria(given: Assessment) -> Iterator[str]:
    for side in ("for", "against"):
        rows = [
            (f"{name}\n{what}", holds, number)
            for each in given.criteria
            if each.side == side
            for holds, name, number, what in criterion_rows(each)
        ]
        yield section(f"What speaks {side} federating", table(("criterion", "holds", "number"), rows))


def _levers(given: Assessment) -> Iterator[tuple[str, ...]]:
    for each in given.levers:
        name, *factors = lever_row(each)
        yield f"{name}\n{each.origin}", *factors
