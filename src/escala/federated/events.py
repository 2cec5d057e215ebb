"""Rounds of a fleet on a virtual clock, without training: who returns in time, what it costs.

The server asks `clients_per_round` times `over_selection` clients; a round ends when as many as it needs
have returned, when it knows of everyone what became of it, or at its deadline. Clients that are late go on to
their end, as nobody stops them, and are busy until then.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from escala.federated.buffered import NOTICED_S, Arrival, buffered_steps
from escala.federated.fates import REASONS, Fates, mean, mean_phases
from escala.federated.order import SERVER, generator
from escala.federated.population import Population, hour_of
from escala.federated.roundrecord import Round
from escala.federated.training import Algorithm, Selection, Training
from escala.federated.transport import taken_s
from escala.model.columns import F64, Bool

TAKEN: Final = 3
"""What the server's random numbers are for, see `fleet.DRAW`."""
MOST_LATE: Final = 10
"""Updates that are later than so many rounds are neither waited for nor merged; an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """An update that missed its round and is under way."""

    client: int
    round_: int
    arrives_s: float


def rounds_of(population: Population, count: int) -> Iterator[Round]:
    """Rounds 1, 2, ... of a population; between two of them a caller may change its history.

    With FedBuff a round is a step of the server.
    """
    return (record for record, _ in steps_of(population, count))


def steps_of(population: Population, count: int) -> Iterator[tuple[Round, tuple[Arrival, ...]]]:
    """Rounds with the updates that count in each; with `merges_late` those that come late count later."""
    if population.training.algorithm is Algorithm.FEDBUFF:
        yield from buffered_steps(population, count)
        return
    now_s, out = 0.0, list[Late]()
    for round_ in range(1, count + 1):
        record, missed = _round(population, round_, now_s)
        now_s = record.start_s + record.round_s
        arrivals = [Arrival(client=client, staleness=0) for client in record.returned]
        if population.training.merges_late:
            due = [each for each in out if each.arrives_s <= now_s and round_ - each.round_ <= MOST_LATE]
            out = [each for each in out if each.arrives_s > now_s] + missed
            arrivals += [Arrival(client=each.client, staleness=round_ - each.round_) for each in due]
            record = msgspec.structs.replace(
                record,
                returned=tuple(sorted(each.client for each in arrivals)),
                metrics={"merged_late": float(len(due))},
            )
        yield record, tuple(arrivals)


def counted_in_time(ended: Fates, training: Training, taken: F64) -> tuple[Bool, float]:
    """Whose replies count, and when the round ends: with the last that is needed, known of, or in time.

    `taken` are the seconds after which the server has the replies, infinite where it never has. A deadline
    ends nothing that the server is taking just then. Of those that are taken together the lower numbers
    count. A Poisson cohort needs everyone.
    """
    needed = len(ended.clients)
    if training.selection is not Selection.POISSON:
        needed = min(training.clients_per_round, needed)
    known_s = np.where(ended.has_returned, taken, ended.end_s + NOTICED_S)
    first = np.argsort(taken, kind="stable")[:needed]
    ends_s = [float(known_s.max(initial=0.0)), float(taken[first].max(initial=0.0))]
    if training.round_deadline_s is not None:
        ends_s.append(float(taken[np.isfinite(taken)].max(initial=training.round_deadline_s)))
    counted = np.zeros(len(ended.clients), np.bool_)
    counted[first] = taken[first] <= min(ends_s)
    return counted, min(ends_s)


def _round(population: Population, round_: int, now_s: float) -> tuple[Round, list[Late]]:
    """One round, and the updates that missed it."""
    training, server = population.training, population.scenario.server
    now_s, is_here = population.opened(now_s, training.least_clients)
    clients = population.cohort(is_here, now_s, draw=round_)
    ended = population.ask(clients, now_s, draw=round_, at_once=len(clients))
    counted, end_s = counted_in_time(ended, training, _taken(population, ended, round_))
    population.asked(ended, now_s)
    population.returned(round_, clients[counted], ended.end_s[counted])
    wait_s = np.maximum(end_s - ended.end_s, 0.0) * ended.has_returned
    round_s = end_s + server.round_s
    energy_j, carbon_kg = population.footprint.of(ended, wait_s, round_s, hour_of(now_s))
    in_time, lost = counted, lost_of(ended, counted, end_s)
    if counted.sum() < training.least_clients:
        lost["too-few"] = int(counted.sum())
        counted = np.zeros_like(counted)
    record = Round(
        round=round_,
        cohort=tuple(clients.tolist()),
        returned=tuple(clients[counted].tolist()),
        lost={reason: number for reason, number in lost.items() if number},
        down_bytes=int(ended.down_bytes.sum()),
        up_bytes=int(ended.up_bytes.sum()),
        start_s=now_s,
        round_s=round_s,
        phase_s=mean_phases(ended, counted) | {"wait": mean(wait_s[counted]), "server": server.round_s},
        energy_j=energy_j,
        carbon_kg=carbon_kg,
    )
    return record, [
        Late(client=int(clients[row]), round_=round_, arrives_s=now_s + float(ended.end_s[row]))
        for row in np.flatnonzero(ended.has_returned & ~in_time)
    ]


def _taken(population: Population, ended: Fates, round_: int) -> F64:
    """When the server has each reply, by the pauses of the transport."""
    training, there_s = population.training, np.where(ended.has_returned, ended.end_s, np.inf)
    draws = generator(training.seed, SERVER, TAKEN, round_)
    begins_s = there_s - ended.up_s
    return taken_s(population.scenario.transport, begins_s, there_s, training.round_deadline_s, draws)


def lost_of(ended: Fates, counted: Bool, end_s: float) -> dict[str, int]:
    """How many did not count, by reason; who had not ended when the round did is late."""
    is_late = ~counted & (ended.has_returned | (ended.end_s > end_s))
    reasons = np.bincount(ended.reason[~counted & ~is_late], minlength=len(REASONS))
    return {"late": int(is_late.sum())} | dict(zip(REASONS, reasons.tolist(), strict=True))
