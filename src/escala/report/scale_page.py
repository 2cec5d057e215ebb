"""A scaling study as a page: efficiency over devices, and the tables. Computes nothing."""

from collections.abc import Iterator

from escala.report.line_plot import STYLE, Line, line_plot
from escala.report.numbers import count, seconds
from escala.report.page import page, paragraph, section, table
from escala.report.scale_text import (
    ahead_row,
    curve_row,
    efficiency_span,
    fit_lines,
    headline,
    lost_row,
    rate,
    tune_lines,
)
from escala.training.study import Scaled


def scale_page(given: Scaled) -> str:
    """The page of a study."""
    return page(headline(given), STYLE, _parts(given))


def _parts(given: Scaled) -> Iterator[str]:
    yield paragraph(f"escala {given.escala}")
    yield section(
        "Efficiency",
        line_plot("efficiency by devices", _lines(given), unit="devices"),
        "rate / devices in terms of the first point; ends: quartiles of steps, then 80 % of the fit",
    )
    heads = ("devices", "plan", "step", "rate", "speed-up", "efficiency")
    yield table(heads, _rows(given))
    lost = ("devices", "Karp-Flatt", "messages", "waiting", "predicted step", "predicted efficiency")
    yield section(
        "What is lost", table(lost, map(lost_row, given.points)), "shares of the step, means over ranks"
    )
    yield from map(paragraph, (*fit_lines(given), *tune_lines(given)))
    yield section("Ahead", table(("devices", "by the fit", "by the model"), map(ahead_row, given.ahead)))
    yield section(
        "Published curves of the same kind",
        table(("curve", "devices", "kept per doubling"), map(curve_row, given.published)),
    )
    yield from map(paragraph, (*given.notes, *given.unsaid))


def _rows(given: Scaled) -> Iterator[tuple[str, ...]]:
    for each in given.points:
        yield (
            count(each.devices),
            each.plan_title,
            f"{seconds(each.step_s)}\n{seconds(each.low_quartile_s)} to {seconds(each.high_quartile_s)}",
            rate(each),
            f"{each.speedup:.2f}",
            efficiency_span(each),
        )


def _lines(given: Scaled) -> list[Line]:
    """Measured with the ends of its interval, the model, and the fit ahead with its interval."""
    points, last = given.points, given.points[-1:]
    ahead = [each for each in given.ahead if each.efficiency is not None]
    told = [each for each in given.ahead if each.predicted_efficiency is not None]
    from_last = tuple((float(each.devices), each.efficiency) for each in last)
    return [
        Line(name="measured", points=tuple((float(each.devices), each.efficiency) for each in points)),
        Line(
            name="model",
            points=(
                *((float(each.devices), each.predicted_efficiency) for each in points),
                *((float(each.devices), each.predicted_efficiency or 0.0) for each in told),
            ),
        ),
        Line(
            name="fit",
            points=(*from_last, *((float(each.devices), each.efficiency or 0.0) for each in ahead)),
        ),
        Line(
            name="low end",
            points=(
                *((float(each.devices), each.efficiency_low) for each in points),
                *((float(e.devices), e.efficiency_low) for e in ahead if e.efficiency_low is not None),
            ),
        ),
        Line(
            name="high end",
            points=(
                *((float(each.devices), each.efficiency_high) for each in points),
                *((float(e.devices), e.efficiency_high) for e in ahead if e.efficiency_high is not None),
            ),
        ),
    ]
