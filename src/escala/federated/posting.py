"""Work that is out at clients of a Grid: sent, sent again after a restart, checked when it comes back.

Knows messages and clients; knows neither rounds' rules nor what weights become.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from escala.errors import InvalidInput
from escala.federated.accepted import (
    ARRAYS,
    GONE,
    WRONG_SHAPE,
    fault_beside,
    fault_of,
    fault_of_arrays,
    fault_of_metrics,
)
from escala.federated.clocks import Clock, WallClock
from escala.federated.flower import (
    TRAIN,
    Arrays,
    Grid,
    Message,
    RecordDict,
    activated,
    payload_bytes,
    total_bytes,
)
from escala.federated.ledger import Ledger, Letter
from escala.federated.nodes import ASK, Nodes
from escala.federated.packing import Packing
from escala.federated.weights import weights_bytes

COUNTED, SENT = "counted", "sent"
LOOK_S: Final = 2.0
"""Between two looks whether nodes have restarted."""
SILENT_S: Final = 30.0
"""A client that is silent for so long is asked who it is; an assumption."""
RETURN_S: Final = 90.0
"""A client that went away is waited for so long; a SuperLink notices after 60 s that a node is silent."""


class Cohort:
    """A grid that shows a strategy only some nodes."""

    def __init__(self, grid: Grid, nodes: list[int]) -> None:
        self._grid, self._nodes = grid, nodes

    def get_node_ids(self) -> list[int]:
        """The nodes of the cohort."""
        return self._nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """A piece of work that is out: at which client, of which round, with which weights, since when."""

    client: int
    round_: int
    had: Arrays
    message: Message
    began_s: float
    gone_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Came:
    """What came back of a piece of work: the client's weights and the message, or why it does not count."""

    asked: Asked
    reply: Message | None
    weights: Arrays
    fault: str | None
    took_s: float


class Post:
    """Sends work and takes it back; each piece counts once, however often it was sent."""

    def __init__(self, grid: Grid, nodes: Nodes, packing: Packing, ledger: Ledger, clock: Clock) -> None:
        self._grid, self._nodes, self._packing = grid, nodes, packing
        self._ledger, self._clock = ledger, clock
        self._out: dict[str, Asked] = {}
        self._gone: list[Asked] = []
        self._looked_s = clock.now_s
        self._activated: dict[int, str] = {}
        self._nudges: dict[str, int] = {}
        self._heard_s: dict[int, float] = {}

    @property
    def out(self) -> list[Asked]:
        """All work that is out, or may be sent again."""
        return [*self._out.values(), *self._gone]

    def send(self, messages: Iterable[Message], weights: Arrays, round_: int) -> None:
        """Send work of a round; each client gets the weights as they are packed for it."""
        for message in messages:
            client = self._nodes.client(message.metadata.dst_node_id)
            assert client is not None
            record, had = self._packing.pack(weights, round_=round_, client=client)
            message.content = RecordDict({**message.content, ARRAYS: record})
            self._push(
                Asked(client=client, round_=round_, had=had, message=message, began_s=self._clock.now_s)
            )
        self._activated = activated(self._grid)

    def collect(self) -> list[Came]:
        """What has come back since the last look, faults too."""
        if self._clock.now_s - self._looked_s >= LOOK_S:
            self._looked_s = self._clock.now_s
            self._send_again()
            if isinstance(self._clock, WallClock):
                self._nudge()
        names = [*self._out, *self._nudges]
        came = [self._taken(reply) for reply in self._grid.pull_messages(names)]
        return [each for each in came if each is not None] + self._given_up()

    def forget(self, round_: int) -> None:
        """Replies to work of rounds before this one are of no interest any more."""
        self._out = {name: each for name, each in self._out.items() if each.round_ >= round_}
        self._gone = [each for each in self._gone if each.round_ >= round_]

    def _push(self, asked: Asked) -> None:
        (name,) = self._grid.push_messages([asked.message])
        if name is None:
            raise InvalidInput("the SuperLink refused a message; look at its log")
        self._out[name] = asked
        self._write_down(asked.message, asked, "down", SENT)

    def _taken(self, reply: Message) -> Came | None:
        """A reply as it counts; one that says that its client went away waits for the client's return."""
        asked = self._out.pop(reply.metadata.reply_to_message_id, None)
        if asked is None:
            nudged = self._nudges.pop(reply.metadata.reply_to_message_id, None)
            if nudged is not None:
                self._heard_s[nudged] = self._clock.now_s
            return None
        self._heard_s[asked.client] = self._clock.now_s
        took_s = self._clock.now_s - asked.began_s
        fault = fault_of(reply, max(payload_bytes(asked.message), weights_bytes(asked.had)))
        if fault == GONE:
            self._gone.append(replace(asked, gone_s=asked.gone_s or self._clock.now_s))
            return None
        self._out = {name: each for name, each in self._out.items() if not _is_same(each, asked)}
        weights, fault = ({}, fault) if fault else self._opened(reply, asked)
        self._write_down(reply, asked, "up", fault or COUNTED)
        return Came(asked=asked, reply=reply, weights=weights, fault=fault, took_s=took_s)

    def _opened(self, reply: Message, asked: Asked) -> tuple[Arrays, str | None]:
        """The weights of a reply, or why they do not count."""
        record = reply.content.array_records[ARRAYS]
        try:
            weights = self._packing.unpack(record, asked.had, round_=asked.round_, client=asked.client)
        except InvalidInput:
            return {}, WRONG_SHAPE
        beside = fault_beside(reply, asked.message)
        return weights, fault_of_arrays(weights, asked.had) or beside or fault_of_metrics(reply)

    def _given_up(self) -> list[Came]:
        """Clients that went away and have not returned in time."""
        until_s = self._clock.now_s - RETURN_S
        lost = [each for each in self._gone if each.gone_s is not None and each.gone_s <= until_s]
        self._gone = [each for each in self._gone if each not in lost]
        return [Came(asked=each, reply=None, weights={}, fault=GONE, took_s=RETURN_S) for each in lost]

    def _send_again(self) -> None:
        """Work of clients whose node has begun anew since it was sent, or is back after it went away."""
        now = activated(self._grid)
        begun = {node for node, when in now.items() if self._activated.get(node, when) != when}
        self._activated = now
        again = [each for each in self._out.values() if self._nodes.node(each.client) in begun]
        again += [each for each in self._gone if self._nodes.node(each.client) in now]
        self._gone = [each for each in self._gone if self._nodes.node(each.client) not in now]
        for each in again:
            copy = Message(each.message.content, self._nodes.node(each.client), TRAIN)
            self._push(replace(each, message=copy))

    def _nudge(self) -> None:
        """Ask silent clients who they are.

        A SuperNode of Flower 1.42 that has sent the reply of an earlier run keeps the one that is waited for
        until it gets another message.
        """
        now_s, nudged = self._clock.now_s, set(self._nudges.values())
        silent = {
            each.client
            for each in self._out.values()
            if now_s - max(each.began_s, self._heard_s.get(each.client, 0.0)) > SILENT_S
        }
        for client in sorted(silent - nudged):
            node = self._nodes.node(client)
            (name,) = self._grid.push_messages([Message(RecordDict({}), node, ASK)])
            if name is not None:
                self._nudges[name] = client

    def _write_down(self, message: Message, asked: Asked, way: str, outcome: str) -> None:
        letter = Letter(
            round=asked.round_,
            client=asked.client,
            kind=TRAIN,
            way=way,
            payload_bytes=payload_bytes(message),
            total_bytes=total_bytes(message),
            outcome=outcome,
        )
        self._ledger.add(letter)


def _is_same(one: Asked, other: Asked) -> bool:
    return (one.client, one.round_) == (other.client, other.round_)
