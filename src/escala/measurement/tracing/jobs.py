"""What is traced in a process of its own, and what comes back. Plain values; loads no torch."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Held(StrEnum):
    """What a byte on the device is for, as the tracker of PyTorch tells it."""

    PARAMETERS = "parameters"
    UNSHARDED = "unsharded"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"


class Axis(StrEnum):
    """Why the ranks of a collective belong together."""

    TENSOR = "tensor"
    SHARDING = "sharding"
    REPLICAS = "replicas"


FORWARD: Final = "forward"
BACKWARD: Final = "backward"
STEP: Final = "step"
BEGIN: Final = "begin"
END: Final = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive layers that a rank holds, and whether embedding and head are with them.

    `first_layer` is the place of the first of `layers` layers in the whole network.
    """

    first_layer: int
    layers: int
    has_embedding: bool
    has_head: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One forward or backward of a chunk for one micro-batch."""

    kind: str
    chunk: int
    micro_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One rank of a plan: config.json of the network, its chunks, its turns in one step, and what splits it.

    `is_sharded` is FSDP2 over `shard` ranks, with so many replicas of each shard; else `replicas` are DDP's,
    with an optimizer that they share when `shares_optimizer`. `waits` says that gradients are added whole and
    reduced after the last micro-batch (stages of a pipeline). Of each chunk the first `recomputed_layers` are
    recomputed, all for -1; `is_selective` keeps the attention and every second product of all.
    """

    keys: dict[str, Any]
    chunks: tuple[Chunk, ...]
    turns: tuple[Turn, ...]
    shard: int
    replicas: int
    tensor: int
    is_sharded: bool
    reshard: bool
    shares_optimizer: bool
    splits_sequence: bool
    waits: bool
    precision: str
    recomputed_layers: int
    is_selective: bool
    micro_batch: int
    sequence_tokens: int

    @property
    def ranks(self) -> int:
        """Ranks of the fake process group; a stage is traced without the others."""
        return self.shard * self.replicas * self.tensor

    @property
    def layers(self) -> int:
        """Layers of all chunks."""
        return sum(chunk.layers for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Bytes by kind when most is in use between two marks of the step, such as backward of the first layer.

    `place` is the number of a layer of a chunk, `begin` or `end`.
    """

    kind: str
    chunk: int
    place: str
    held_bytes: dict[str, float]

    @property
    def total_bytes(self) -> float:
        """All kinds together."""
        return sum(self.held_bytes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Collectives of one operation over one group for one micro-batch (None: the optimizer step).

    The payload of a gather or reduce-scatter is the whole tensor, of an all-reduce what each rank holds.
    """

    operation: str
    axis: str
    micro_batch: int | None
    count: float
    payload_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One traced rank: the moments of a step, its collectives, and the FLOP of each micro-batch."""

    moments: tuple[Moment, ...]
    collectives: tuple[Collective, ...]
    flop: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the process says of one job: the trace, or why there is none."""

    traced: Traced | None = None
    refusal: str = ""
