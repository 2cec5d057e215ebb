"""A population that learns: the event engine says who returns and when, clients train, the server steps.

Training is real; devices, links and hours are those of the scenario, on its virtual clock. Needs torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from escala.errors import InvalidInput
from escala.federated import local
from escala.federated.accuracy import fairness, score
from escala.federated.algorithms import server_of, stepped, with_controls
from escala.federated.buffered import Arrival
from escala.federated.clientdata import client_data, refused
from escala.federated.events import MOST_LATE, steps_of
from escala.federated.fleet import fleet_of, without
from escala.federated.gathering import Gathered
from escala.federated.learnstate import Heard, State
from escala.federated.learnt import on_the_wire, with_task
from escala.federated.partition import Rows, mixes
from escala.federated.population import Population
from escala.federated.privacy import epsilon, why_no_epsilon
from escala.federated.references import Broadcast, Held
from escala.federated.refusals import refuse
from escala.federated.roundrecord import Round
from escala.federated.scenario import Scenario
from escala.federated.task import Task
from escala.federated.training import Algorithm
from escala.federated.vectorised import trainer_of
from escala.federated.weights import Weights, weights_bytes

MOST_PAST_BYTES: Final = 2**30
"""So much may the weights take that clients of FedBuff still work on."""


class Learning:
    """One run of a scenario on a task: `rounds` is called once; from `state` another run may go on."""

    def __init__(self, scenario: Scenario, task: Task, rows: Rows, say: Callable[[str], None]) -> None:
        self._training, self._task, self._rows = scenario.training, task, rows
        refuse(self._training, len(rows))
        self._module = local.module_of(task, self._training)
        weights = local.weights_of(self._module)
        self.scenario = with_task(scenario, task, self._module)
        fleet = fleet_of(self.scenario, self._training.seed)
        data = [client_data(place, task.inputs[each], task.labels[each]) for place, each in enumerate(rows)]
        self.refused = refused(data, scenario.gate)
        samples = np.array([each.samples for each in data])
        self.fleet = without(replace(fleet, samples=samples), self.refused)
        for client, why in self.refused.items():
            say(f"client {client} is kept out: {why}")
        self._population = Population(self.scenario, self.fleet)
        self._population.payload = on_the_wire(self._training, weights)
        self._labels = mixes(task, rows).counts
        self._trainer = trainer_of(self._module, task, self._training, say)
        self.state = State(
            done=0,
            server=server_of(self._training, weights),
            controls={},
            residuals={},
            past={0: weights},
            heard=(),
        )
        self._broadcast = Broadcast(codec=self._training.codec_down, seed=self._training.seed)

    def rounds(self, count: int) -> Iterator[Round]:
        """Rounds behind those that the state has done, up to a number; those before only pass the clock."""
        begun = self.state.done
        self._broadcast.held = Held(version=begun, weights=self.state.past[begun])
        for record, arrivals in steps_of(self._population, count):
            if record.round > self.state.done:
                yield self._learnt(record, arrivals)
            self._hear(self.state.heard[record.round - 1])

    def _hear(self, heard: Heard) -> None:
        """Clients are chosen by the losses that they told."""
        clients, losses = heard
        self._population.history.loss[clients] = losses

    def _learnt(self, record: Round, arrivals: Sequence[Arrival]) -> Round:
        """Train those that returned, step the server, and score its weights."""
        gathered = self._gathered(record.round, arrivals)
        self.state = self._after(record.round, gathered)
        metrics = self._metrics() | gathered.told()
        invalid = gathered.invalid
        return msgspec.structs.replace(
            record,
            returned=tuple(each for each in record.returned if each not in invalid),
            lost=record.lost | ({"invalid": len(invalid)} if invalid else {}),
            metrics=record.metrics | metrics,
            epsilon=self._epsilon(record.round),
        )

    def _gathered(self, round_: int, arrivals: Sequence[Arrival]) -> Gathered:
        gathered = Gathered(self._training, round_, self.state)
        for staleness in sorted({each.staleness for each in arrivals}):
            began = round_ - staleness
            if began - 1 not in self.state.past:
                raise InvalidInput("updates are too stale for the memory; lower clients_per_round")
            clients = [each.client for each in arrivals if each.staleness == staleness]
            rows = {each: self._rows[each] for each in clients}
            for part in self._trainer(rows, self.state.past[began - 1], began, gathered.pulls(clients)):
                gathered.take(part, staleness)
        return gathered

    def _after(self, round_: int, gathered: Gathered) -> State:
        """The state after a round: built whole, so that an interrupt leaves the one before."""
        state, server = self.state, self.state.server
        change, turned = gathered.change(), gathered.turned()
        if change is not None:
            server = stepped(server, self._training, change)
        if turned is not None:
            server = with_controls(server, turned, len(self._rows))
        return State(
            done=round_,
            server=server,
            controls={**state.controls, **gathered.controls},
            residuals={**state.residuals, **gathered.residuals},
            past=self._past(round_, self._given(server.weights, round_)),
            heard=(*state.heard, gathered.heard()),
        )

    def _given(self, weights: Weights, step: int) -> Weights:
        """What clients hold of the server's weights after a step: those that the codec brought down."""
        if self._training.codec_down.kind == "none":
            return weights
        return dict(self._broadcast.advance(weights, step))

    def _past(self, round_: int, weights: Weights) -> dict[int, Weights]:
        """Weights that clients were given and may still work on, by the number of steps done."""
        kept = 1 + MOST_LATE * self._training.merges_late
        if self._training.algorithm is Algorithm.FEDBUFF:
            kept = MOST_PAST_BYTES // weights_bytes(weights)
        return {step: each for step, each in self.state.past.items() if step > round_ - kept} | {
            round_: weights
        }

    def _metrics(self) -> dict[str, float]:
        found = score(self._module, self._task, self.state.server.weights)
        names = tuple(each.name for each in self.scenario.clients)
        own = fairness(found, self._labels, self.fleet.kind, names)
        return {"accuracy": found.accuracy, "loss": found.loss, **own}

    def _epsilon(self, round_: int) -> float | None:
        if self._training.privacy is None or why_no_epsilon(self._training, len(self._rows)) is not None:
            return None
        return epsilon(self._training, len(self._rows), round_)
