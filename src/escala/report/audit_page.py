"""A checked federated run as a page: verdict, what it was, rounds, clients' data. Computes nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from escala.federated.roundrecord import Round
from escala.report.audit_text import told_faults, told_labels, told_lines, verdict
from escala.report.audit_view import Audited
from escala.report.line_plot import STYLE, Line, line_plot
from escala.report.numbers import count
from escala.report.page import figures, page, paragraph, section, table
from escala.units import digits, show_si
from escala.wholefile import write_whole


def save_page(given: Audited, rounds: Sequence[Round], path: str) -> None:
    """Write the page of a run and its rounds to a file."""
    write_whole(Path(path), audit_page(given, rounds).encode())


def audit_page(given: Audited, rounds: Sequence[Round]) -> str:
    """The page of a run and its rounds."""
    return page(f"{given.name}: audit", STYLE, _parts(given, rounds))


def _parts(given: Audited, rounds: Sequence[Round]) -> Iterator[str]:
    yield paragraph(verdict(given))
    yield figures(_figures(given))
    if given.faults:
        yield section("Faults", table(("what",), [(fault,) for fault in given.faults]))
    lines = (paragraph(f"{label}: {'; '.join(told)}") for label, told in told_lines(given))
    yield section("What ran", "".join(lines))
    yield from _plots(rounds)
    if given.data:
        heads = ("client", "samples", "labels", "faults")
        rows = [
            (str(each.client), count(each.samples), told_labels(each, len(each.labels)), told_faults(each))
            for each in given.data
        ]
        yield section("Data by client", table(heads, rows), "counts only; no sample is kept")
    code = [(name, found) for name, found in given.code.items()]
    yield section("Fingerprints", table(("of", "SHA-256"), [("end of the chain", given.head), *code]))


def _figures(given: Audited) -> Iterator[tuple[str, str]]:
    yield "records", "whole" if given.is_sound else "not whole"
    yield "rounds", count(given.rounds)
    yield "clients counted", f"{count(given.taking_part)} of {count(given.clients)}"
    yield "down", show_si(given.down_bytes, "B")
    yield "up", show_si(given.up_bytes, "B")
    if given.epsilon is not None:
        yield "epsilon", digits(given.epsilon)


def _plots(rounds: Sequence[Round]) -> Iterator[str]:
    clients = [
        Line(name="asked", points=tuple((float(each.round), float(len(each.cohort))) for each in rounds)),
        Line(name="counted", points=tuple((float(each.round), float(len(each.returned))) for each in rounds)),
    ]
    yield section("Clients", line_plot("clients by round", clients, "round"), "by round")
    spent = tuple((float(each.round), each.epsilon) for each in rounds if each.epsilon is not None)
    if spent:
        yield section(
            "Privacy spent", line_plot("epsilon by round", [Line(name="epsilon", points=spent)], "round")
        )
