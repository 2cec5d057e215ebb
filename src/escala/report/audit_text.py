"""A checked federated run for people: sound or not, why, and what it was. Computes nothing."""

from collections.abc import Iterator, Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.federated.clientdata import ClientData
from escala.federated.training import Robust, Selection
from escala.report.audit_view import Audited
from escala.report.layout import STRONG, add_row, flow, hanging, put, put_table, room, table_of
from escala.report.numbers import count, plural
from escala.units import digits, percent, show_si

SHOWN_CLIENTS: Final = 12
SHOWN_LABELS: Final = 3
SHORT_DIGEST: Final = 16
SECRET: Final = (
    "Who knows the seed knows the cohorts; epsilon under Poisson sampling holds while both stay secret."
)


def print_audited(console: Console, given: Audited) -> None:
    """Everything that `escala federate audit` shows."""
    rounds = f"{count(given.rounds)} round{plural(given.rounds)}"
    put(console, f"{one_line(given.name)}, {rounds} in {one_line(given.folder)}")
    put(console, Text(verdict(given), style=STRONG))
    put(console)
    for fault in given.faults:
        put(console, Text(one_line(fault, 200), style="red"), indent=2)
    hanging(console, "Head", flow([given.head], room(console)))
    for label, told in told_lines(given):
        hanging(console, label, flow(told, room(console)))
    put(console)
    if given.data:
        _print_data(console, given)


def verdict(given: Audited) -> str:
    """One line: whether the records are whole."""
    if given.is_sound:
        return "The records are whole: every round once, in order, and unchanged since it was written"
    return f"The records are not whole: {count(len(given.faults))} fault{plural(len(given.faults))}"


def told_lines(given: Audited) -> Iterator[tuple[str, list[str]]]:
    """What a run was, by label."""
    yield "Ran", [given.made_by, *(f"{name} {found}" for name, found in given.packages.items())]
    yield "Code", [f"{name} {found[:SHORT_DIGEST]}…" for name, found in given.code.items()]
    yield "Train", told_training(given.training)
    sent = [f"{show_si(given.down_bytes, 'B')} down", f"{show_si(given.up_bytes, 'B')} up"]
    yield (
        "Sent",
        [*sent, f"{count(given.taking_part)} of {count(given.clients)} clients counted at least once"],
    )
    if given.lost:
        yield "Lost", [f"{count(number)} {reason}" for reason, number in given.lost.items()]
    if given.epsilon is not None and given.delta is not None:
        yield "Spent", [f"epsilon {digits(given.epsilon)} at delta {given.delta:g}", *_condition(given)]
    for client, why in given.refused.items():
        yield "Out", [f"client {client}: {why}"]


def _condition(given: Audited) -> list[str]:
    return [SECRET] if given.training.get("selection") == Selection.POISSON else []


def told_training(training: Mapping[str, object]) -> list[str]:
    """The settings of a training that a reader looks for first."""
    names = ("algorithm", "selection", "clients_per_round", "local_epochs", "batch", "learning_rate", "seed")
    told = [f"{name.replace('_', ' ')} {training[name]}" for name in names if name in training]
    return told + list(_protection(training))


def _protection(training: Mapping[str, object]) -> Iterator[str]:
    """What was not left at its default: codecs, robust rule, noise, secure aggregation."""
    for name in ("codec_up", "codec_down"):
        codec = training.get(name)
        if isinstance(codec, dict) and codec["kind"] != "none":
            yield f"{name.replace('_', ' ')} {codec['kind']}"
    if training.get("robust") not in (None, Robust.MEAN):
        yield f"{training['robust']} against {training['attackers']} attackers"
    privacy = training.get("privacy")
    if isinstance(privacy, dict):
        yield f"{privacy['place']} noise {privacy['noise_ratio']} × clip {privacy['clip']}"
    if training.get("has_secure_aggregation"):
        yield "secure aggregation"


def told_labels(data: ClientData, most: int) -> str:
    """A label histogram in a few words: '0: 12, 1: 9, 4 more' for two at most."""
    shown = list(data.labels.items())[:most]
    rest = len(data.labels) - len(shown)
    return ", ".join(
        [*(f"{label}: {count(number)}" for label, number in shown), *([f"{rest} more"] if rest else [])]
    )


def told_faults(data: ClientData) -> str:
    """What is wrong with a client's data, as shares."""
    told = []
    if data.missing_ratio:
        told.append(f"{percent(data.missing_ratio)} missing")
    if data.duplicate_ratio:
        told.append(f"{percent(data.duplicate_ratio)} repeated")
    if data.constant_columns:
        told.append(f"{count(data.constant_columns)} of {count(data.columns)} columns constant")
    return ", ".join(told) or "none"


def _print_data(console: Console, given: Audited) -> None:
    table = table_of(
        console, (("client", "right"), ("samples", "right"), ("labels", "text"), ("faults", "text"))
    )
    for each in given.data[:SHOWN_CLIENTS]:
        add_row(
            table, str(each.client), count(each.samples), told_labels(each, SHOWN_LABELS), told_faults(each)
        )
    put_table(console, table)
    rest = len(given.data) - SHOWN_CLIENTS
    if rest > 0:
        put(console, f"{count(rest)} more clients; --json or -o shows all", indent=2)
