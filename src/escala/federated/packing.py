"""How weights travel between server and clients. Plain here; codecs have the same four methods."""

from collections.abc import Mapping
from typing import Protocol

from escala.errors import InvalidInput
from escala.federated.accepted import read
from escala.federated.flower import ArrayRecord, Arrays, record_of


class Packing(Protocol):
    """What is sent for the server's weights, and which weights a reply means."""

    def pack(self, weights: Arrays, *, round_: int, client: int) -> tuple[ArrayRecord, Arrays]:
        """What is sent to a client, and the weights that the client then has."""

    def unpack(self, record: ArrayRecord, had: Arrays, *, round_: int, client: int) -> Arrays:
        """The weights that a client means, which had those; what does not fit raises InvalidInput."""

    def kept(self) -> dict[str, Arrays]:
        """What has to be found again after a restart, by group and name."""

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Take back what was kept."""


class Plain:
    """Weights travel as they are."""

    def __init__(self) -> None:
        self._sent: tuple[Arrays, ArrayRecord] | None = None

    def pack(self, weights: Arrays, *, round_: int, client: int) -> tuple[ArrayRecord, Arrays]:
        """One record for all clients of a round."""
        if self._sent is None or self._sent[0] is not weights:
            self._sent = (weights, record_of(weights))
        return self._sent[1], weights

    def unpack(self, record: ArrayRecord, had: Arrays, *, round_: int, client: int) -> Arrays:
        """The arrays themselves."""
        arrays = read(record)
        if arrays is None:
            raise InvalidInput("the reply holds an array that cannot be read")
        return arrays

    def kept(self) -> dict[str, Arrays]:
        """Nothing."""
        return {}

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Nothing was kept."""
