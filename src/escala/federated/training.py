"""How a population learns: algorithm, cohort, local work, codec, selection, privacy. Shapes only."""

from dataclasses import dataclass
from enum import StrEnum

from escala.federated.ranges import Range


class Algorithm(StrEnum):
    """How updates of clients become the next weights."""

    FEDAVG = "fedavg"
    FEDPROX = "fedprox"
    FEDADAM = "fedadam"
    FEDYOGI = "fedyogi"
    SCAFFOLD = "scaffold"
    FEDBUFF = "fedbuff"


class Selection(StrEnum):
    """Which clients take part in a round."""

    UNIFORM = "uniform"
    POISSON = "poisson"
    UTILITY = "utility"
    ENERGY = "energy"
    LOW_CARBON = "low-carbon"


class Part(StrEnum):
    """What a client trains and sends."""

    FULL = "full"
    LAST_LAYERS = "last-layers"
    LORA = "lora"


class Robust(StrEnum):
    """How updates that lie or err are kept out; mean keeps none out."""

    MEAN = "mean"
    MEDIAN = "median"
    TRIMMED_MEAN = "trimmed-mean"
    KRUM = "krum"
    NORM_BOUND = "norm-bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """How an update is packed: kind, the share of numbers kept by top-k and rand-k, error feedback."""

    kind: str = "none"
    keep_ratio: float | None = None
    has_feedback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """Differential privacy: where noise is added, its ratio to the clip, the clip of an update, the delta."""

    place: str
    noise_ratio: float
    clip: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One way to train a population.

    `clients_per_round` is the cohort that has to return; `over_selection` asks more of them; after
    `round_deadline_s` a round ends with those that came. With FedBuff `clients_per_round` work at a time and
    the server steps after `buffer` updates. Without a server learning rate it is that of the algorithm.
    """

    rounds: Range
    clients_per_round: int
    algorithm: Algorithm = Algorithm.FEDAVG
    local_epochs: int = 1
    batch: int = 16
    learning_rate: float = 0.1
    server_learning_rate: float | None = None
    proximal: float = 0.0
    buffer: int | None = None
    part: Part = Part.FULL
    codec_up: Codec = Codec()
    codec_down: Codec = Codec()
    selection: Selection = Selection.UNIFORM
    over_selection: float = 1.0
    round_deadline_s: float | None = None
    least_clients: int = 1
    robust: Robust = Robust.MEAN
    has_secure_aggregation: bool = False
    privacy: Privacy | None = None
    seed: int = 0
