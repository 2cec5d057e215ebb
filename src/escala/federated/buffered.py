"""Rounds without rounds: so many clients work at a time, and the server steps when enough updates are there.

The next client begins as soon as another has ended. What becomes of it (its hours, its charge) is judged as
of the moment at which it was chosen, `buffer` clients at a time. Source: Nguyen et al. 2022 (FedBuff).
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.federated.fates import REASONS, Fates, mean_phases
from escala.federated.population import LONGEST_WAIT_S, Population, hour_of
from escala.federated.roundrecord import Round
from escala.federated.training import Training
from escala.model.columns import I64

NOTICED_S: Final = 60.0
"""So long after a client is gone its server knows: two heartbeats of 30 s. Source: flwr 1.42, constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An update that counts: whose it is, and how many steps the server took while it was made."""

    client: int
    staleness: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, order=False)
class Flight:
    """A client at work: its row in the fates of those chosen with it, and the step at which it began."""

    ended: Fates
    row: int
    began: int

    @property
    def client(self) -> int:
        """Its number."""
        return int(self.ended.clients[self.row])


def buffered_steps(population: Population, count: int) -> Iterator[tuple[Round, tuple[Arrival, ...]]]:
    """Steps 1, 2, ... of the server, each with the updates in it in the order in which they came."""
    course = _Course(population)
    for step in range(1, count + 1):
        yield course.step(step)


class _Course:
    """Who is at work, who is next, what time it is."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self._now_s = 0.0
        self._free = population.training.clients_per_round
        self._flights: list[tuple[float, int, Flight]] = []
        self._next: deque[tuple[Fates, int]] = deque()
        self._is_away = np.zeros(len(population.fleet), np.bool_)
        self._draw = 0
        self._begun = 0

    def step(self, step: int) -> tuple[Round, tuple[Arrival, ...]]:
        """Go on until the buffer is full."""
        start_s, training = self._now_s, self._population.training
        begun, over, arrivals = list[int](), list[Flight](), list[Arrival]()
        lost = Counter[str]()
        while len(arrivals) < (training.buffer or 1):
            begun += self._begin(step)
            flight = self._ended(start_s)
            if flight is None:
                continue
            over.append(flight)
            reason = _fault(flight, training)
            if reason is None:
                arrivals.append(Arrival(client=flight.client, staleness=step - flight.began))
                self._population.returned(step, flight.client, float(flight.ended.end_s[flight.row]))
            else:
                lost[reason] += 1
        return self._record(step, start_s, begun, over, arrivals, lost), tuple(arrivals)

    def _begin(self, step: int) -> list[int]:
        """Fill the free places with the next clients, as far as there are any."""
        begun = []
        while self._free and (self._next or self._choose()):
            ended, row = self._next.popleft()
            flight = Flight(ended=ended, row=row, began=step)
            at_s = self._now_s + _known_s(flight, self._population.training)
            heapq.heappush(self._flights, (at_s, self._begun, flight))
            self._free, self._begun = self._free - 1, self._begun + 1
            begun.append(flight.client)
        return begun

    def _choose(self) -> bool:
        population = self._population
        is_here = population.here(self._now_s) & ~self._is_away
        self._draw += 1
        wanted = max(population.training.buffer or 1, self._free)
        asked = replace(population.training, clients_per_round=wanted, over_selection=1.0)
        clients = population.cohort(is_here, self._now_s, draw=self._draw, training=asked)
        if not clients.size:
            return False
        at_once = population.training.clients_per_round
        ended = population.ask(clients, self._now_s, draw=self._draw, at_once=at_once)
        population.asked(ended, self._now_s)
        self._is_away[clients] = True
        self._next.extend((ended, row) for row in range(len(clients)))
        return True

    def _ended(self, start_s: float) -> Flight | None:
        """The next client that ends; None where none works and time had to pass until one is there."""
        if self._now_s - start_s > LONGEST_WAIT_S:
            raise InvalidInput(
                "for two days the server never had enough updates; lower buffer, or see why clients get lost"
            )
        if not self._flights:
            self._now_s, _ = self._population.opened(self._now_s + 1.0, 1)
            return None
        self._now_s, _, flight = heapq.heappop(self._flights)
        self._free += 1
        self._is_away[flight.client] = False
        return flight

    def _record(
        self,
        step: int,
        start_s: float,
        begun: list[int],
        over: list[Flight],
        arrivals: list[Arrival],
        lost: Counter[str],
    ) -> Round:
        ended = _gathered(over)
        round_s = self._now_s - start_s
        footprint = self._population.footprint
        energy_j, carbon_kg = footprint.of(ended, np.zeros(len(over)), round_s, hour_of(start_s))
        is_counted = np.array([_fault(each, self._population.training) is None for each in over])
        stale = [each.staleness for each in arrivals]
        return Round(
            round=step,
            cohort=tuple(sorted(begun)),
            returned=tuple(sorted(each.client for each in arrivals)),
            lost=dict(sorted(lost.items())),
            down_bytes=int(ended.down_bytes.sum()),
            up_bytes=int(ended.up_bytes.sum()),
            start_s=start_s,
            round_s=round_s,
            phase_s=mean_phases(ended, is_counted),
            energy_j=energy_j,
            carbon_kg=carbon_kg,
            metrics={"staleness": float(np.mean(stale)), "staleness_most": float(max(stale))},
        )


def _fault(flight: Flight, training: Training) -> str | None:
    """Why an update does not count."""
    reason = int(flight.ended.reason[flight.row])
    if training.round_deadline_s is not None and _known_s(flight, training) >= training.round_deadline_s:
        return "late"
    return None if reason < 0 else REASONS[reason]


def _known_s(flight: Flight, training: Training) -> float:
    """When the server knows what became of a client: with its reply, after heartbeats, or in time."""
    end_s = float(flight.ended.end_s[flight.row])
    known_s = end_s if flight.ended.reason[flight.row] < 0 else end_s + NOTICED_S
    return known_s if training.round_deadline_s is None else min(known_s, training.round_deadline_s)


def _gathered(flights: list[Flight]) -> Fates:
    """The rows of these clients as fates of their own."""
    rows: I64 = np.array([each.row for each in flights])
    parts = {id(each.ended): each.ended for each in flights}
    place = {key: number for number, key in enumerate(parts)}
    offsets = np.cumsum([0, *(len(each.clients) for each in parts.values())])
    where = rows + offsets[[place[id(each.ended)] for each in flights]]
    return Fates(
        **{
            name: np.concatenate([getattr(each, name) for each in parts.values()])[where]
            for name in Fates.__dataclass_fields__
        }
    )
