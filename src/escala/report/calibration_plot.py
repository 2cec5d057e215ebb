"""The plot of predicted against published step time as SVG: one mark a row, both axes logarithmic.

A full mark has the published time inside its own 80 % interval, a ring has it outside. Scores nothing.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from escala.model.interval import WORDS
from escala.report.numbers import count, in_percent, seconds
from escala.report.validate_view import RowView, Validated
from escala.units import digits

WIDE, HIGH = 900, 580  # of the picture, in its own units
LEFT, TOP, SIDE = 66, 30, 500  # the square that holds the marks
LEGEND: Final = LEFT + SIDE + 22
RADIUS: Final = 2.6
EMPTY: Final = (0.1, 10.0)  # seconds, where there is no row
# Colours of regimes, on light and on dark ground.
COLOURS: Final = (
    ("#0b62a8", "#5aa9e6"),
    ("#1f9bb5", "#5fd3e8"),
    ("#2a8a43", "#63cf80"),
    ("#7a7a7a", "#b5b5b5"),
    ("#c98a00", "#f2c14e"),
    ("#b04a98", "#ea8bd2"),
    ("#8a5a33", "#c99668"),
    ("#5b45c4", "#a695ff"),
    ("#c8312b", "#ff7b72"),
)
NAMES: Final = tuple(WORDS.values())


def style() -> str:
    """Colours and type of the plot, for light and dark mode."""
    light = "".join(f"--r{i}:{pair[0]};" for i, pair in enumerate(COLOURS))
    dark = "".join(f"--r{i}:{pair[1]};" for i, pair in enumerate(COLOURS))
    regimes = "".join(f".r{i}{{--c:var(--r{i})}}" for i in range(len(COLOURS)))
    return (
        f":root{{--ground:#fff;--ink:#1c1f23;--quiet:#626a73;--line:#dfe3e8;--band:#0b62a81f;{light}}}"
        "@media(prefers-color-scheme:dark){"
        f":root{{--ground:#14171b;--ink:#e6e8ea;--quiet:#98a1ab;--line:#30363d;--band:#5aa9e62e;{dark}}}}}"
        f"{regimes}.plot text{{fill:var(--ink);font:13px system-ui,sans-serif}}.plot .q{{fill:var(--quiet)}}"
        ".plot .g{stroke:var(--line)}.plot .i{stroke:var(--ink);stroke-dasharray:5 4}"
        ".plot .b{fill:var(--band)}.plot circle{stroke:var(--c);stroke-width:1}"
        ".plot .in{fill:var(--c);fill-opacity:.5;stroke-opacity:.6}.plot .out{fill:none}"
    )


def svg(given: Validated) -> str:
    """The plot as a file of its own."""
    return (
        plot(given)
        .replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        .replace(
            "><title>",
            f"><style>{style()}</style><rect width='100%' height='100%' fill='var(--ground)'/><title>",
            1,
        )
    )


def plot(given: Validated) -> str:
    """The plot as an element of a page that has its style."""
    rows = [each for each in given.predictions if each.is_trusted and each.published_s]
    low, high = _decades(rows)
    parts = [*_frame(low, high), *_band(given, low, high), *_marks(rows, low, high), *_legend(given)]
    return (
        f'<svg class="plot" viewBox="0 0 {WIDE} {HIGH}" role="img">'
        f"<title>Predicted against published step time</title>{''.join(parts)}</svg>\n"
    )


def _decades(rows: Sequence[RowView]) -> tuple[int, int]:
    """Powers of ten of seconds that hold every row."""
    every = [value for row in rows for value in (row.published_s or 1.0, row.predicted_s.value)] or EMPTY
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    return low, max(high, low + 1)


def _along(value: float, low: int, high: int) -> float:
    """Where a number of seconds lies along an axis."""
    return SIDE * (math.log10(value) - low) / (high - low)


def _frame(low: int, high: int) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="16">predicted step</text>'
    yield f'<text x="{LEFT + SIDE}" y="{TOP + SIDE + 42}" text-anchor="end">published step</text>'
    for power in range(low, high + 1):
        at = _along(10.0**power, low, high)
        label = f"{10**power:,} s" if power >= 0 else seconds(10.0**power)
        x, y = LEFT + at, TOP + SIDE - at
        yield f'<path class="g" d="M{x:.1f} {TOP}v{SIDE}M{LEFT} {y:.1f}h{SIDE}"/>'
        yield f'<text class="q" x="{x:.1f}" y="{TOP + SIDE + 20}" text-anchor="middle">{label}</text>'
        yield f'<text class="q" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _band(given: Validated, low: int, high: int) -> Iterator[str]:
    """The 80 % band of the middle row around the line of perfect prediction."""
    right, top = LEFT + SIDE, TOP + SIDE
    if given.scores.time is not None:
        off = min(_along(given.scores.time.interval_ratio * 10.0**low, low, high), SIDE)
        yield (
            f'<path class="b" d="M{LEFT} {top}V{top - off:.1f}L{right - off:.1f} {TOP}'
            f'H{right}V{TOP + off:.1f}L{LEFT + off:.1f} {top}Z"/>'
        )
    yield f'<path class="i" d="M{LEFT} {top}L{right} {TOP}"/>'


def _marks(rows: Sequence[RowView], low: int, high: int) -> Iterator[str]:
    for row in rows:
        x = LEFT + _along(row.published_s or 1.0, low, high)
        y = TOP + SIDE - _along(row.predicted_s.value, low, high)
        place = "in" if row.is_inside else "out"
        times = seconds(row.published_s or 1.0), seconds(row.predicted_s.value)
        yield (
            f'<circle class="r{NAMES.index(row.regime)} {place}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}">'
            f"<title>{escape(row.id)}: published {times[0]}, predicted {times[1]}</title></circle>"
        )


def _legend(given: Validated) -> Iterator[str]:
    """Regimes with their rows and the share that the interval holds."""
    y = TOP + 12
    yield f'<text class="q" x="{LEGEND}" y="{y}">regime: rows, share inside its interval</text>'
    for each in given.scores.time_by["regime"]:
        y += 38
        said = f"{count(each.errors.rows)}, {in_percent(each.errors.coverage)} %"
        yield f'<circle class="r{NAMES.index(each.name)} in" cx="{LEGEND + 6}" cy="{y - 4}" r="5"/>'
        yield f'<text x="{LEGEND + 18}" y="{y}">{each.name}</text>'
        yield f'<text class="q" x="{LEGEND + 18}" y="{y + 16}">{said}</text>'
    if given.scores.time is not None:
        y += 44
        ratio = digits(given.scores.time.interval_ratio)
        yield f'<text class="q" x="{LEGEND}" y="{y}">full: inside its interval; ring: outside</text>'
        yield f'<text class="q" x="{LEGEND}" y="{y + 18}">band: ÷ and × {ratio}, of the middle row</text>'
