"""Which Flower node is which client. Asks each node once; knows nothing of what clients do."""

import numpy as np

from escala.errors import EscalaError
from escala.federated.clocks import Clock
from escala.federated.flower import QUERY, ConfigRecord, Grid, Message, RecordDict
from escala.model.columns import Bool

ASK = f"{QUERY}.client"
ANSWER, CLIENT, SAMPLES = "client", "client", "samples"
PATIENCE_S = 120.0
"""For the answers of new nodes: the first message to a node starts Python and imports what its app needs."""
CALM_S = 1.0


class TooFew(EscalaError):
    """Too few clients to go on: says how many, what became of the others, what to do."""


class Nodes:
    """Clients by node, asked from the nodes: numbers come from their own settings, so restarts keep them."""

    def __init__(self, grid: Grid, clients: int, clock: Clock) -> None:
        self._grid, self._clients, self._clock = grid, clients, clock
        self._client_of: dict[int, int] = {}
        self._refused: set[int] = set()
        self.samples: dict[int, int] = {}

    def here(self) -> Bool:
        """Which clients have a node that is online."""
        online = list(self._grid.get_node_ids())
        self._ask([node for node in online if node not in self._client_of and node not in self._refused])
        here = np.zeros(self._clients, np.bool_)
        here[[self._client_of[node] for node in online if node in self._client_of]] = True
        return here

    def node(self, client: int) -> int:
        """The node of a client that is known."""
        return next(node for node, known in self._client_of.items() if known == client)

    def client(self, node: int) -> int | None:
        """The client of a node, where it is one."""
        return self._client_of.get(node)

    def wait_for(self, least: int, most_s: float) -> Bool:
        """Which clients are here, once there are so many; else an error after so many seconds."""
        until_s = self._clock.now_s + most_s
        while (here := self.here()).sum() < least:
            if self._clock.now_s >= until_s:
                raise TooFew(
                    f"{int(here.sum())} of at least {least} clients are online after {most_s:.0f} s; start"
                    " the missing nodes, or ask for fewer with least_clients and --resume"
                )
            self._clock.wait(CALM_S)
        return here

    def _ask(self, nodes: list[int]) -> None:
        if not nodes:
            return
        asked = [Message(RecordDict({"config": ConfigRecord({})}), node, ASK) for node in nodes]
        for reply in answers(self._grid, asked, self._clock, PATIENCE_S):
            self._learn(reply)

    def _learn(self, reply: Message) -> None:
        """Take a node's word for its number, unless another one has it or there is no such client."""
        node = reply.metadata.src_node_id
        if reply.has_error():
            return
        told = reply.content.config_records.get(ANSWER, {})
        client = told.get(CLIENT)
        if not isinstance(client, int) or not 0 <= client < self._clients or client in self._taken():
            self._refused.add(node)
            return
        self._client_of[node] = client
        self.samples[client] = int(told.get(SAMPLES, 0))

    def _taken(self) -> set[int]:
        online = set(self._grid.get_node_ids())
        return {client for node, client in self._client_of.items() if node in online}


def answers(grid: Grid, messages: list[Message], clock: Clock, most_s: float) -> list[Message]:
    """Replies to messages that came within so many seconds."""
    waiting, until_s = set(grid.push_messages(messages)) - {None}, clock.now_s + most_s
    came: list[Message] = []
    while waiting:
        replies = list(grid.pull_messages(waiting))
        waiting -= {each.metadata.reply_to_message_id for each in replies}
        came += replies
        if clock.now_s >= until_s:
            break
        if waiting:
            clock.wait(until_s - clock.now_s)
    return came
