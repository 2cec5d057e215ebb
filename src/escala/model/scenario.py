"""A federated population: clients, their data, devices, links, hours and places. Shapes only.

The planner of this version does not answer federated questions; the schema stands so that files and records
of later versions stay readable.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from escala.model.network import Network


class Regulation(StrEnum):
    """Whether raw data may leave the client."""

    MAY_MOVE = "may-move"
    WITHIN_REGION = "within-region"
    MUST_STAY = "must-stay"


class TrainedPart(StrEnum):
    """What a client trains and sends."""

    FULL = "full"
    LAST_LAYERS = "last-layers"
    LORA = "lora"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A quantity that is known only within bounds: low, mid, high."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTarget:
    """One way a device can compute: CPU, GPU, NPU or a clock step, with its speed and power."""

    name: str
    sample_s: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLink:
    """How a client reaches the server: speeds, share of attempts that succeed, energy of a byte."""

    kind: str
    up_bytes_per_s: float
    down_bytes_per_s: float
    stability_ratio: float
    j_per_byte: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientData:
    """Data of one client; `skew_factor` is the Dirichlet concentration of labels, None for none."""

    stored_bytes: float
    samples: float
    growth_samples_per_day: float = 0.0
    skew_factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientClass:
    """Clients alike: how many, what they compute with, when they are there, where they stand."""

    name: str
    devices: int
    targets: tuple[ExecutionTarget, ...]
    link: AccessLink
    data: ClientData
    memory_bytes: float
    available_hours: tuple[int, ...] = tuple(range(24))
    battery_j: float | None = None
    country: str | None = None
    idle_w: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A federated question: who holds which data, what is to be learnt, under which rules and by when."""

    name: str
    network: Network
    trained: TrainedPart
    clients: tuple[ClientClass, ...]
    regulation: Regulation
    rounds: int | None = None
    clients_per_round: int | None = None
    local_steps: int = 1
    deadline_s: float | None = None
    needs_audit: bool = False
    is_incremental: bool = False
    notes: tuple[str, ...] = field(default=())
