"""What to learn: network, data shape, batch, method, optimizer. Knows nothing of machines or layouts."""

from dataclasses import dataclass, field
from enum import StrEnum

from escala.model.network import Network


class Method(StrEnum):
    """Which weights are trained, and from what."""

    PRETRAIN = "pretrain"
    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    ADAPTER = "adapter"


class Phase(StrEnum):
    """What the job does with the network."""

    TRAIN = "train"
    EVAL = "eval"
    SAVE = "save"
    LOAD = "load"


class OptimizerKind(StrEnum):
    """The update rule."""

    ADAMW = "adamw"
    SGD = "sgd"
    ADAFACTOR = "adafactor"
    MUON = "muon"
    LION = "lion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The update rule and how its state is stored.

    `state_bytes` is the width of each moment (4 fp32, 2 bf16, 1 8-bit and 4 for each block's scale); AdamW
    keeps two moments, SGD with momentum and Lion one, plain SGD none. Adafactor factors its second moment;
    `moments` counts what it keeps beside. Muon keeps one for each matrix of a layer, which it orthogonalises,
    and two for all others, which AdamW updates. Each matrix is that of one rank (`owns_matrices`), or all
    ranks gather and orthogonalise all. `is_paged` states leave the device while other things need the room.
    `is_fused` is one kernel for all parameters, without temporaries.
    """

    kind: OptimizerKind = OptimizerKind.ADAMW
    state_bytes: float = 4.0
    moments: int = 2
    is_fused: bool = True
    owns_matrices: bool = True
    is_paged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters: rank, the linear maps that get one, bytes per trained weight, dropout of inputs."""

    rank: int = 16
    targets: tuple[str, ...] = ("q", "k", "v", "o", "gate", "up", "down")
    weight_bytes: float = 4.0
    has_dropout: bool = False


class Batching(StrEnum):
    """How samples of unequal length make rows: none are, or padded, sorted and padded, or put together.

    PADDED rows are as long as the longest of their micro-batch; GROUPED ones hold samples of like length.
    PACKED samples fill rows and attend to each other, MASKED ones to themselves only.
    """

    FULL = "full"
    PADDED = "padded"
    GROUPED = "grouped"
    PACKED = "packed"
    MASKED = "masked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Bottlenecks inside each layer, in series: one behind attention and one behind the feed-forward.

    Down to `width`, activation, up again, residual; `weight_bytes` of each trained weight.
    Source: Houlsby et al. 2019, section 2.1.
    """

    width: int = 64
    weight_bytes: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Distribution of sample lengths in tokens: equally likely lengths, and what is made of them.

    `is_packed` is false where a source does not say how long its samples are; such runs are not planned.
    """

    quantile_tokens: tuple[float, ...] = ()
    is_packed: bool = True
    batching: Batching = Batching.FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What to learn: a network, its sequence length and global batch, the method and the optimizer.

    `global_batch` counts sequences or images in one optimizer step.
    """

    network: Network
    sequence_tokens: int
    global_batch: int
    total_tokens: float | None = None
    method: Method = Method.PRETRAIN
    lora: Lora | None = None
    adapter: Adapter | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    phase: Phase = Phase.TRAIN
    lengths: Lengths = field(default_factory=Lengths)

    @property
    def is_frozen(self) -> bool:
        """True when the weights of the network itself get no gradient."""
        return self.method in (Method.LORA, Method.QLORA, Method.ADAPTER)

    @property
    def adapter_bytes(self) -> float | None:
        """Bytes of each trained weight beside a frozen network; None where the network itself is trained."""
        added = self.lora or self.adapter
        return None if added is None else added.weight_bytes
