"""A simulated population as a page: lines over rounds, tables, fairness. Computes nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from escala.federated.summary import ACCURACY, Course, Simulated, Simulation
from escala.report.federated_text import (
    CLASS_HEADS,
    COST_HEADS,
    FAIR_HEADS,
    PHASE_HEADS,
    REACHED_HEADS,
    class_row,
    cost_row,
    fair_row,
    headline,
    phase_rows,
    reached_row,
    run_lines,
)
from escala.report.line_plot import STYLE, Line, line_plot
from escala.report.page import page, paragraph, section, table

MOST_POINTS: Final = 400
LINES: Final = 5
ACROSS: Final = (("hours", "end_hours", "h"), ("bytes", "sent_gb", "GB"), ("energy", "energy_kwh", "kWh"))
SHOWN: Final = (
    ("Clients that counted", "returned", "updates in each round"),
    ("Clients lost", "lost", "late, dropped out, without link, window or battery, by round"),
    ("Round time", "round_s", "seconds of each round on the virtual clock"),
    ("Clock", "end_hours", "hours since the start at the end of each round"),
    ("Energy", "energy_kwh", "kWh of all rounds so far, mid"),
    ("Bytes", "sent_gb", "GB both ways of all rounds so far"),
)


def simulation_page(given: Simulation, courses: Mapping[str, Course]) -> str:
    """The page of one run, or of several on the same fleet."""
    return page(headline(given), STYLE, _parts(given, courses))


def _parts(given: Simulation, courses: Mapping[str, Course]) -> Iterator[str]:
    yield paragraph(f"escala {given.escala}")
    if len(given.runs) > 1:
        yield section("Policies", table(("policy", *COST_HEADS), map(cost_row, given.runs)))
        yield table(("policy", *FAIR_HEADS), map(fair_row, given.runs))
    if len(given.runs) == 1:
        yield from _run_parts(given.runs[0], is_alone=True)
    for title, field, told in SHOWN:
        lines = [_line(policy, getattr(course, field)) for policy, course in courses.items()]
        yield section(title, line_plot(told, lines[:LINES], unit="round"), told)
    for name in dict.fromkeys(name for course in courses.values() for name in course.metrics):
        lines = [_line(policy, course.metrics.get(name, ())) for policy, course in courses.items()]
        yield section(name.replace("_", " ").capitalize(), line_plot(name, lines[:LINES], unit="round"))
    yield from _accuracy_parts(courses)
    if len(given.runs) > 1:
        for each in given.runs:
            yield from _run_parts(each, is_alone=False)
    yield section("What was assumed", "".join(map(paragraph, given.notes)))


def _accuracy_parts(courses: Mapping[str, Course]) -> Iterator[str]:
    """Accuracy against time, bytes and energy, where clients learn."""
    learnt = {policy: each for policy, each in courses.items() if ACCURACY in each.metrics}
    for title, field, unit in ACROSS if learnt else ():
        lines = [
            Line(name=policy, points=_thinned(zip(getattr(each, field), each.metrics[ACCURACY], strict=True)))
            for policy, each in learnt.items()
        ]
        yield section(f"Accuracy against {title}", line_plot(title, lines[:LINES], unit=unit))


def _run_parts(given: Simulated, *, is_alone: bool) -> Iterator[str]:
    if is_alone:
        yield table(("", ""), ((label, " · ".join(said)) for label, said in run_lines(given).items()))
    if given.milestones:
        title = "What accuracy took" if is_alone else f"{given.policy}: what accuracy took"
        yield section(title, table((ACCURACY, *REACHED_HEADS), map(reached_row, given.milestones)))
    title = "Energy by phase" if is_alone else f"{given.policy}: energy by phase"
    yield section(title, table(("phase", *PHASE_HEADS), phase_rows(given)))
    yield section(
        "Coverage by class" if is_alone else f"{given.policy}: coverage by class",
        table(("class", *CLASS_HEADS), map(class_row, given.fairness.classes)),
        "share of updates over share of clients: 1 is even",
    )


def _line(name: str, values: Sequence[float | None]) -> Line:
    """Points by round, thinned to what a plot can show."""
    return Line(name=name, points=_thinned(enumerate(values, 1)))


def _thinned(points: Iterable[tuple[float, float | None]]) -> tuple[tuple[float, float], ...]:
    kept = [(float(at), float(value)) for at, value in points if value is not None]
    every = -(-len(kept) // MOST_POINTS) or 1
    return tuple(kept[every - 1 :: every])
