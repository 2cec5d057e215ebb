"""Rounds of an engine written down as they come, and what they came to. Knows no engine's inside."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from escala import __version__
from escala.errors import InvalidInput, unknown
from escala.federated.batteries import FULL_CHARGE_S
from escala.federated.buffered import NOTICED_S
from escala.federated.events import rounds_of
from escala.federated.fates import ATTEMPTS
from escala.federated.fleet import Fleet, fleet_of
from escala.federated.manifest import ROUNDS
from escala.federated.population import Population
from escala.federated.roundrecord import Round
from escala.federated.scenario import Gate, Scenario
from escala.federated.selection import refuse_unfit
from escala.federated.summary import Course, Simulated, Simulation, Tally
from escala.federated.training import Selection
from escala.progress import Progress
from escala.units import HOUR_S
from escala.wholefile import write_whole

EVENTS: Final = "events"
MOST_CLIENTS: Final = 2_000_000
"""More columns than this do not fit a small machine: a client takes about 500 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run to do: a scenario with its policy and seed, its fleet, the file of its rounds, those done."""

    scenario: Scenario
    fleet: Fleet
    file: Path
    done: tuple[Round, ...] = ()

    @property
    def policy(self) -> str:
        """How cohorts are chosen."""
        return str(self.scenario.training.selection)


def cases_of(scenario: Scenario, policies: Sequence[str], seed: int | None, folder: Path) -> list[Case]:
    """A run for each policy on the same devices; what cannot be followed is refused before any begins."""
    clients = sum(each.clients for each in scenario.clients)
    if clients > MOST_CLIENTS:
        raise InvalidInput(
            f"{clients:,} clients are more than {MOST_CLIENTS:,}, which a simulation takes; give each class a"
            " hundredth of its clients: with cohorts far smaller than that nothing but their coverage changes"
        )
    training = scenario.training if seed is None else replace(scenario.training, seed=seed)
    cases = []
    for policy in policies or [str(training.selection)]:
        own = replace(scenario, training=replace(training, selection=selection_of(policy)))
        fleet = fleet_of(own, training.seed)
        refuse_unfit(own.training, fleet)
        file = folder / policy / ROUNDS if len(policies) > 1 else folder / ROUNDS
        cases.append(Case(scenario=own, fleet=fleet, file=file))
    return cases


def selection_of(name: str) -> Selection:
    """The policy of a name."""
    if name not in tuple(Selection):
        raise unknown("policy", name, list(Selection), f"there are {', '.join(Selection)}")
    return Selection(name)


def event_rounds(case: Case, count: int) -> Iterator[Round]:
    """Rounds by the event engine."""
    yield from rounds_of(Population(case.scenario, case.fleet), count)


def run(
    case: Case, engine: str, rounds: Iterator[Round], count: int, progress: Progress
) -> tuple[Simulated | None, Course | None, bool]:
    """Write each round before the next is asked for and add it up; Ctrl-C ends with those that are there.

    Rounds that are done come first, and what else the file holds is cut off. Gives what the rounds came to
    (nothing without a round), their course, and whether they were cut short.
    """
    tally = Tally(case.fleet.kind, [each.name for each in case.scenario.clients])
    encoder, began_s, done, is_interrupted = msgspec.json.Encoder(), time.monotonic(), len(case.done), False
    case.file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(case.file, b"".join(encoder.encode(each) + b"\n" for each in case.done))
    for each in case.done:
        tally.add(each)
    with case.file.open("ab", buffering=0) as file:  # a kill loses no line
        try:
            for record in rounds:
                file.write(encoder.encode(record) + b"\n")
                tally.add(record)
                done += 1
                left_s = (time.monotonic() - began_s) / (done - len(case.done)) * (count - done)
                progress(f"{case.policy}: round {done:,} of {count:,}", left_s)
        except KeyboardInterrupt:
            is_interrupted = True
    if not done:
        return None, None, is_interrupted
    return tally.result(policy=case.policy, engine=engine), tally.course(), is_interrupted


def simulation(
    scenario: Scenario, seed: int, count: int, runs: Sequence[Simulated], *, is_interrupted: bool
) -> Simulation:
    """The document of runs that are done."""
    return Simulation(
        escala=__version__,
        scenario=scenario.name,
        clients=sum(each.clients for each in scenario.clients),
        seed=seed,
        wanted_rounds=count,
        runs=tuple(runs),
        is_interrupted=is_interrupted,
        notes=tuple(_notes(scenario)),
    )


def _notes(scenario: Scenario) -> Iterator[str]:
    """What was assumed, in the order in which it matters."""
    yield from scenario.assumed
    yield (
        f"a message carries {scenario.transport.down_overhead_bytes:,.0f} B beside its payload (assumed); a"
        f" transfer is tried {ATTEMPTS} times; the server knows {NOTICED_S:.0f} s later that a client is gone"
    )
    if any(each.device.battery_j is not None for each in scenario.clients):
        yield (
            f"batteries are full at first, fill in {FULL_CHARGE_S / HOUR_S:.0f} h outside the hours of their"
            " clients, and under a fifth their clients do not take part (assumed)"
        )
    if scenario.gate != Gate():
        yield "the gate looks at data: with --engine events there are none, and nobody is kept out"
    yield "devices are drawn once, so time has no range here: another seed draws others"
    yield "the clock begins at 0:00 UTC; clients that are late go on to their end, and their energy counts"
    if scenario.server_country is None and scenario.central.country is None:
        yield "carbon is unknown: neither server nor central alternative has a country"
    elif any(each.country is None and not each.hourly_carbon_kg_per_j for each in scenario.clients):
        yield "carbon is unknown where classes of clients have no country"


def rounds_by_default(scenario: Scenario) -> int:
    """The middle of the rounds that the scenario expects."""
    return max(1, math.ceil(scenario.training.rounds.mid))
