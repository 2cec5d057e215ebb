"""A Flower Grid in this process, with a virtual clock: any ClientApp and Strategy, no process, no network.

A message takes the seconds that its client's row of the fleet gives: latency, bytes over rates, start and
samples of training. Clients work on one message at a time. What gets lost, and when, depends on the seed, the
client and the number of its message only.
"""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import numpy as np

from escala.errors import EscalaError
from escala.federated.fleet import Fleet
from escala.federated.flower import (
    LOST,
    RAISED,
    SUPERLINK,
    TRAIN,
    Context,
    Error,
    Grid,
    Message,
    RecordDict,
    become_server,
    hush,
    payload_bytes,
    stamp,
)
from escala.federated.order import generator
from escala.measurement.job.fault import user_code

FIRST_NODE: Final = SUPERLINK + 1
HOUR_S: Final = 3600.0
App = Callable[[Message, Context], Message]
DRAWS: Final = 3  # arrives there, is worked on, arrives back
LOSSES: Final = 1 << 40  # a stream of random numbers that no round has


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A reply under way and when it arrives; for a lost message, the error that its end of time brings."""

    reply: Message
    arrives_s: float


class VirtualGrid(Grid):
    """Nodes that are rows of a fleet: node `client + 2` is that client. Time passes only in waits."""

    def __init__(
        self,
        app: App,
        fleet: Fleet,
        *,
        epochs: int = 1,
        seed: int = 0,
        run_config: dict[str, Any] | None = None,
        start_s: float = 0.0,
    ) -> None:
        become_server()
        hush()
        self.now_s = start_s
        self.contexts = [
            Context(1, client + FIRST_NODE, _place(client, len(fleet)), RecordDict(), dict(run_config or {}))
            for client in range(len(fleet))
        ]
        self._app, self._fleet, self._epochs, self._seed = app, fleet, epochs, seed
        self._flights: dict[str, Flight] = {}
        self._free_s = [start_s] * len(fleet)
        self._sent = [0] * len(fleet)

    def set_run(self, run: Any) -> None:
        """There is only one run here."""

    @property
    def run(self) -> Any:
        """There is only one run here, and nobody asks for it."""
        return None

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Nodes whose hours of the day include the present one."""
        return [int(client) + FIRST_NODE for client in np.flatnonzero(self._fleet.hours[:, self.hour])]

    @property
    def hour(self) -> int:
        """The hour of the day."""
        return int(self.now_s // HOUR_S) % 24

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages now; each client computes in the order in which messages reach it."""
        names = []
        for message in messages:
            name = f"message-{sum(self._sent)}"
            stamp(message, name)
            self._flights[name] = self._flight(message, message.metadata.dst_node_id - FIRST_NODE)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Replies that have arrived by now, in the order of arrival; each once."""
        arrived = [
            name
            for name in message_ids
            if name in self._flights and self._flights[name].arrives_s <= self.now_s
        ]
        flights = sorted((self._flights.pop(name) for name in arrived), key=lambda each: each.arrives_s)
        return [each.reply for each in flights]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and wait for all replies, or as long as is said."""
        names = self.push_messages(messages)
        until_s = self.now_s + (inf if timeout is None else timeout)
        last_s = max((self._flights[name].arrives_s for name in names), default=self.now_s)
        self.now_s = min(until_s, last_s)
        return self.pull_messages(names)

    def wait(self, most_s: float) -> None:
        """Let time pass until the next reply arrives, at most so much."""
        coming_s = [each.arrives_s for each in self._flights.values() if each.arrives_s > self.now_s]
        self.now_s = min(self.now_s + most_s, *coming_s) if coming_s else self.now_s + most_s

    def _flight(self, message: Message, client: int) -> Flight:
        """What becomes of a message: worked on and answered, or lost on one of the ways."""
        fleet = self._fleet
        there, works, back = generator(self._seed, client, LOSSES, self._sent[client]).random(DRAWS)
        self._sent[client] += 1
        gone_s = self.now_s + message.metadata.ttl
        is_training = message.metadata.message_type.split(".")[0] == TRAIN
        if there >= fleet.arrival_ratio[client] or (is_training and works < fleet.dropout_ratio[client]):
            return Flight(reply=_lost(message), arrives_s=gone_s)
        down_s = float(fleet.latency_s[client] + payload_bytes(message) / fleet.down_bytes_per_s[client])
        work_s = float(fleet.start_s[client] + self._epochs * fleet.samples[client] * fleet.sample_s[client])
        reply = self._answer(message, client)
        up_s = float(fleet.latency_s[client] + payload_bytes(reply) / fleet.up_bytes_per_s[client])
        begins_s = max(self.now_s + down_s, self._free_s[client])
        self._free_s[client] = begins_s + (work_s if is_training else 0.0)
        if back >= fleet.arrival_ratio[client]:
            return Flight(reply=_lost(message), arrives_s=gone_s)
        return Flight(reply=reply, arrives_s=self._free_s[client] + up_s)

    def _answer(self, message: Message, client: int) -> Message:
        """The reply of the app to its copy of the message; what it raises is sent back, as Flower does."""
        own = copy(message)
        own.__dict__["_content"] = RecordDict(
            {name: type(each)(dict(each)) for name, each in message.content.items()}
        )
        try:
            with user_code("the app of the client"):
                return self._app(own, self.contexts[client])
        except EscalaError as error:  # as Flower's client process answers, whatever its app raises
            return Message(Error(RAISED, str(error)), reply_to=message)


def _place(client: int, clients: int) -> dict[str, Any]:
    return {"partition-id": client, "num-partitions": clients}


def _lost(message: Message) -> Message:
    return Message(Error(LOST, "the message or its reply was lost"), reply_to=message)
