"""How a population learns: algorithm, cohort, local work, codec, selection, privacy. Shapes only."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from escala.errors import InvalidInput, unknown
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


CODECS: Final = ("none", "fp16", "int8", "top-k", "rand-k")
KEEPING_CODECS: Final = ("top-k", "rand-k")
PRIVACY_PLACES: Final = ("central", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """How an update is packed: kind, the share of numbers kept by top-k and rand-k, error feedback."""

    kind: str = "none"
    keep_ratio: float | None = None
    has_feedback: bool = False

    def __post_init__(self) -> None:
        if self.kind not in CODECS:
            raise unknown("codec", self.kind, CODECS, f"known are {', '.join(CODECS)}")
        if self.kind not in KEEPING_CODECS and self.keep_ratio is not None:
            raise InvalidInput(f"codec {self.kind} sends every number; take away keep_ratio, or choose top-k")
        if self.kind in KEEPING_CODECS and not 0 < (self.keep_ratio or 0) <= 1:
            raise InvalidInput(
                f"codec {self.kind} needs keep_ratio, the share of numbers that is sent, above 0 and at most"
                f" 1; it is {self.keep_ratio}"
            )
        if self.kind == "none" and self.has_feedback:
            raise InvalidInput("codec none loses nothing, so there is no error to feed back; take it away")


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """Differential privacy: where noise is added, its ratio to the clip, the clip of an update, the delta."""

    place: str
    noise_ratio: float
    clip: float
    delta: float

    def __post_init__(self) -> None:
        if self.place not in PRIVACY_PLACES:
            raise unknown("place of privacy", self.place, PRIVACY_PLACES, "noise is central or local")
        if not (0 < self.noise_ratio < math.inf and 0 < self.clip < math.inf):
            raise InvalidInput(
                f"noise_ratio {self.noise_ratio} and clip {self.clip} have to be above 0 and finite; without"
                " noise or without a bound on an update nothing is private"
            )
        if not 0 < self.delta < 1:
            raise InvalidInput(f"delta is {self.delta}; choose one above 0 and far below 1 / clients")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One way to train a population.

    `clients_per_round` is the cohort that has to return; `over_selection` asks more of them; after
    `round_deadline_s` a round ends with those that came; with `merges_late` the others count in a later
    round, by 1 / sqrt(1 + rounds late). With FedBuff `clients_per_round` work at a time and the server steps
    after `buffer` updates. Without a server learning rate it is that of the algorithm.
    `attackers` is how many of those that return may lie, against which `robust` has to hold; `norm_bound` is
    the longest update that norm-bound lets pass, longer ones are shortened.
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
    merges_late: bool = False
    robust: Robust = Robust.MEAN
    attackers: int = 0
    norm_bound: float | None = None
    has_secure_aggregation: bool = False
    privacy: Privacy | None = None
    seed: int = 0
