"""How weights travel between server and clients. Plain here; codecs have the same four methods."""

from collections.abc import Mapping
from typing import Protocol

from escala.errors import InvalidInput
from escala.federated.accepted import ARRAYS, read
from escala.federated.flower import Arrays, RecordDict, record_of
from escala.federated.training import Training


class Packing(Protocol):
    """What is sent for the server's weights, which weights a reply means, and what a restart has to know."""

    def pack(self, weights: Arrays, *, round_: int, client: int) -> tuple[RecordDict, Arrays]:
        """The records that a client is sent for weights, and the weights that it then has."""

    def unpack(self, content: RecordDict, had: Arrays, *, round_: int, client: int) -> Arrays:
        """The weights that a client means, which had those; what does not fit raises InvalidInput."""

    def kept(self) -> dict[str, Arrays]:
        """What has to be found again after a restart, by group and name."""

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Take back what was kept."""


def packing_of(training: Training) -> Packing:
    """How weights of a training travel."""
    for way, codec in (("up", training.codec_up), ("down", training.codec_down)):
        if codec.kind != "none":
            raise InvalidInput(f"codec {codec.kind} ({way}) is not known to runs on Flower; choose none")
    return Plain()


class Plain:
    """Weights travel as they are."""

    def __init__(self) -> None:
        self._sent: tuple[Arrays, RecordDict] | None = None

    def pack(self, weights: Arrays, *, round_: int, client: int) -> tuple[RecordDict, Arrays]:
        """The same records for all clients of a round."""
        if self._sent is None or self._sent[0] is not weights:
            self._sent = (weights, RecordDict({ARRAYS: record_of(weights)}))
        return self._sent[1], weights

    def unpack(self, content: RecordDict, had: Arrays, *, round_: int, client: int) -> Arrays:
        """The arrays themselves."""
        arrays = read(content.array_records[ARRAYS])
        if arrays is None:
            raise InvalidInput("the reply holds an array that cannot be read")
        return arrays

    def kept(self) -> dict[str, Arrays]:
        """Nothing."""
        return {}

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Nothing to take."""
