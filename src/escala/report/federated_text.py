"""A simulated population for people: time, bytes, energy by phase, carbon, who was lost, fairness.

Computes nothing.
"""

from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.federated.fairness import Coverage
from escala.federated.footprint import Triple
from escala.federated.summary import Milestone, Simulated, Simulation
from escala.report.layout import STRONG, add_row, flow, folded, hanging, put, put_table, room, table_of
from escala.report.numbers import count, energy, mass, plural, seconds, span
from escala.units import digits, percent, show_si

UNKNOWN = "–"
PHASE_HEADS = ("seconds an update", "energy", "low to high", "share")
CLASS_HEADS = ("clients", "updates / clients", "never asked")
COST_HEADS = ("time", "updates", "energy", "low to high", "CO2e")
FAIR_HEADS = ("energy an update", "lost", "Gini", "Jain", "never asked")
REACHED_HEADS = ("rounds", "time", "bytes both ways", "energy")
REACHED = 6
PHASES = {"down": "download", "compute": "compute", "up": "upload", "wait": "wait", "server": "server"}


def print_simulation(console: Console, given: Simulation) -> None:
    """Everything that `escala federate simulate` shows."""
    put(console, Text(headline(given), style=STRONG))
    put(console)
    if len(given.runs) == 1:
        _print_run(console, given.runs[0])
    else:
        _print_compared(console, given)
    for note in given.notes:
        hanging(console, "Note", folded(Text(one_line(note, 400)), room(console)))


def headline(given: Simulation) -> str:
    """Which population, by which engine, how long."""
    engines = " and ".join(dict.fromkeys(each.engine for each in given.runs))
    state = ", interrupted" if given.is_interrupted else ""
    clients = f"{count(given.clients)} client{plural(given.clients)}"
    return f"{one_line(given.scenario)} · {clients} · engine {engines}, seed {given.seed}{state}"


def _print_run(console: Console, given: Simulated) -> None:
    for label, chunks in run_lines(given).items():
        hanging(console, label, flow(chunks, room(console)), style=STRONG)
    put(console)
    table = table_of(console, [("phase", "left"), *((each, "right") for each in PHASE_HEADS)])
    for row in phase_rows(given):
        add_row(table, *row)
    put_table(console, table)
    if given.milestones:
        table = table_of(console, [("accuracy", "right"), *((each, "right") for each in REACHED_HEADS)])
        for milestone in given.milestones[-REACHED:]:
            add_row(table, *reached_row(milestone))
        put_table(console, table)
    table = table_of(console, [("class", "left"), *((each, "right") for each in CLASS_HEADS)])
    for each in given.fairness.classes:
        add_row(table, *class_row(each))
    put_table(console, table)


def run_lines(given: Simulated) -> dict[str, list[str]]:
    """What a run came to, by label: rounds, clients, bytes, energy, carbon, fairness, what was learnt."""
    took = given.round_s
    between = span(took.p10_s, took.p90_s, seconds)
    empty = [f"{count(given.empty_rounds)} without any update"] if given.empty_rounds else []
    lines = {
        "Rounds": [
            f"{count(given.rounds)} by {given.policy} in {seconds(given.end_s)}",
            f"{seconds(took.median_s)} each {between}",
            *empty,
        ],
        "Asked": [f"{count(given.asked)}, {count(given.returned)} counted", *lost_chunks(given)],
        "Bytes": [f"{show_si(given.down_bytes, 'B')} down", f"{show_si(given.up_bytes, 'B')} up"],
        "Energy": [ranged(given.total_energy_j, energy), f"{per_update(given)} an update that counts"],
        "CO2e": [UNKNOWN if given.carbon_kg is None else ranged(given.carbon_kg, mass)],
        "Fair": fairness_chunks(given),
    }
    if given.metrics:
        lines["Last"] = [f"{name.replace('_', ' ')} {digits(value)}" for name, value in given.metrics.items()]
    return lines


def lost_chunks(given: Simulated) -> list[str]:
    """Clients that did not count, by reason, as shares of those that were asked."""
    return [
        f"{reason} {count(number)} ({percent(share)})"
        for (reason, number), share in zip(given.lost.items(), given.lost_shares.values(), strict=True)
    ]


def fairness_chunks(given: Simulated) -> list[str]:
    """How evenly updates come from clients."""
    fair = given.fairness
    return [
        f"Gini {fair.gini:.2f} (0 is even)",
        f"Jain {fair.jain:.2f} (1 is even)",
        f"{percent(fair.never_asked_share)} of clients never asked",
        f"{percent(fair.never_counted_share)} never counted",
    ]


def per_update(given: Simulated) -> str:
    """Mid energy of one update that counts."""
    return UNKNOWN if given.energy_j_per_update is None else energy(given.energy_j_per_update)


def ranged(given: Triple, show: Callable[[float], str]) -> str:
    """Mid with low and high."""
    low, mid, high = given
    return f"{show(mid)} {span(low, high, show)}"


def phase_row(given: Simulated, phase: str) -> tuple[str, ...]:
    """A phase: seconds of an update that counts, energy of everyone asked, its range, its share."""
    low, mid, high = given.energy_j[phase]
    took_s = given.phase_s.get(phase)
    took = UNKNOWN if took_s is None else seconds(took_s) if took_s else "0 s"
    return PHASES[phase], took, energy(mid), span(low, high, energy), percent(given.energy_shares[phase])


def phase_rows(given: Simulated) -> Iterator[tuple[str, ...]]:
    """Phases in their order."""
    return (phase_row(given, phase) for phase in PHASES if phase in given.energy_j)


def reached_row(given: Milestone) -> tuple[str, ...]:
    """An accuracy, and what it took to reach it."""
    sent = show_si(given.sent_bytes, "B")
    return percent(given.accuracy), count(given.rounds), seconds(given.end_s), sent, energy(given.energy_j)


def class_row(given: Coverage) -> tuple[str, ...]:
    """A class: clients, its share of updates over its share of clients, who was never asked."""
    never = percent(given.never_asked_share)
    return one_line(given.name), count(given.clients), f"{given.updates_per_share:.2f}", never


def _print_compared(console: Console, given: Simulation) -> None:
    for heads, row in ((COST_HEADS, cost_row), (FAIR_HEADS, fair_row)):
        table = table_of(console, [("policy", "left"), *((each, "right") for each in heads)])
        for each in given.runs:
            add_row(table, *row(each))
        put_table(console, table)


def cost_row(given: Simulated) -> tuple[str, ...]:
    """One policy: time, updates that count, energy with its range, carbon."""
    low, mid, high = given.total_energy_j
    carbon = UNKNOWN if given.carbon_kg is None else mass(given.carbon_kg[1])
    took = seconds(given.end_s)
    return given.policy, took, count(given.returned), energy(mid), span(low, high, energy), carbon


def fair_row(given: Simulated) -> tuple[str, ...]:
    """One policy: energy of an update, clients lost, evenness, clients that were never asked."""
    fair, lost = given.fairness, percent(given.lost_share)
    never = percent(fair.never_asked_share)
    return given.policy, per_update(given), lost, f"{fair.gini:.2f}", f"{fair.jain:.2f}", never
