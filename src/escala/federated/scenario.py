"""A federated population: clients, their data, devices, links, hours, places, rules. Shapes only; no file."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from escala.federated.ranges import Range
from escala.federated.training import Training
from escala.federated.transport import IDEAL, Transport


class Movement(StrEnum):
    """Whether raw data may leave the client."""

    FREE = "yes"
    WITHIN_REGION = "within-region"
    NEVER = "no"


class Skew(StrEnum):
    """How labels differ between clients."""

    IID = "iid"
    DIRICHLET = "dirichlet"
    BY_LABEL = "by-label"
    BY_USER = "by-user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One way in which a device computes (CPU, GPU, NPU, a clock step): speed, and power above idle.

    `sample_s` is the time of one training sample of this scenario's model where it was measured; otherwise it
    follows from `flop_per_s`, what the device achieves in training, not its peak.
    """

    name: str
    flop_per_s: Range
    power_w: Range
    sample_s: Range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a client computes with; `start_s` is what its training process needs before the first batch."""

    name: str
    targets: tuple[Target, ...]
    memory_bytes: float
    idle_w: Range
    start_s: Range
    battery_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a client reaches the server: rates, share of transfers that arrive, energy of one byte.

    `energy_kind` says what the energy is: `average` of all traffic of such a path, or `marginal`. The price
    is what traffic costs, where somebody says it.
    """

    name: str
    up_bytes_per_s: Range
    down_bytes_per_s: Range
    latency_s: float
    arrival_ratio: float
    energy_j_per_byte: Range
    energy_kind: str = "average"
    price_usd_per_byte: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalData:
    """Data of one client; `concentration` is that of Dirichlet, `labels` the labels a client has."""

    samples: int
    sample_bytes: float
    growth_samples_per_day: float = 0.0
    skew: Skew = Skew.IID
    concentration: float | None = None
    labels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientClass:
    """Clients alike: how many, what they compute with, when they are there, where they stand.

    `hours` are those of a day, in UTC, in which the client takes part; `dropout_ratio` is the share of
    rounds that a client begins and does not end for reasons other than its link and battery.
    `hourly_carbon_kg_per_j` are 24 values of the grid, hour 0 UTC first; empty, the yearly average counts.
    """

    name: str
    clients: int
    device: Device
    access: Access
    data: LocalData
    hours: tuple[int, ...] = tuple(range(24))
    country: str | None = None
    dropout_ratio: float = 0.0
    hourly_carbon_kg_per_j: tuple[float, ...] = ()
    price_usd_per_device_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What is learnt, in numbers: weights, those that are trained and sent, FLOP of one sample forward.

    `shapes` are those of the tensors that are sent, where they are known; messages are then exact.
    """

    name: str
    weights: float
    trained_weights: float
    forward_flop_per_sample: float
    weight_bytes: float = 4.0
    training_memory_bytes: float | None = None
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Central:
    """Where the same could be learnt on gathered data: devices, what they achieve, power, site, price.

    `access` is also how the server of a federation is reached; `epochs` are passes over all data to the same
    target; `sample_s` is the time of a sample on one device where it was measured.
    """

    name: str
    devices: int
    flop_per_s: Range
    power_w: Range
    pue: float
    country: str | None
    price_usd_per_device_hour: float | None
    price_source: str | None
    access: Access
    epochs: Range
    sample_s: Range | None = None


SERVER_W: Final = Range(low=5.0, mid=45.0, high=300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What adds updates up: its power while a round lasts, PUE, seconds of work a round.

    Source: Yousefpour et al. 2023 (Green FL), section 3: 45 W at 1 % utilisation, PUE 1.09; an aggregator of
    its own is no data centre, so the ends are wide.
    """

    power_w: Range = SERVER_W
    pue: float = 1.09
    round_s: float = 1.0


class Measure(StrEnum):
    """What a comparison counts."""

    BYTES = "bytes"
    TIME = "time"
    ENERGY = "energy"
    CARBON = "carbon"
    MONEY = "money"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is demanded: may data move, by when, is every update to be proved, do data keep coming.

    `region` are the countries that data must not leave. A place with `enough_samples` of its own learns well
    enough alone, by the user's own learning curve. `decide_by` are the measures that a verdict counts.
    """

    movement: Movement
    deadline_s: float | None = None
    needs_audit: bool = False
    needs_exact_repeat: bool = False
    rounds_per_week: float | None = None
    region: tuple[str, ...] = ()
    enough_samples: float | None = None
    decide_by: tuple[Measure, ...] = tuple(Measure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a client's data need for it to take part. The defaults let pass whatever can be trained on."""

    least_samples: int = 1
    least_labels: int = 1
    most_missing_ratio: float = 0.0
    most_duplicate_ratio: float = 1.0
    most_constant_ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A federated question: who holds which data, what is to be learnt, how, under which rules.

    `rounds` to the target is a range because nobody knows it before a pilot; `assumed` names what was
    taken from defaults, for people to see.
    """

    name: str
    learnt: Learnt
    training: Training
    clients: tuple[ClientClass, ...]
    rules: Rules
    central: Central
    server: Server = Server()
    server_country: str | None = None
    transport: Transport = IDEAL
    gate: Gate = Gate()
    notes: tuple[str, ...] = field(default=())
    assumed: tuple[str, ...] = field(default=())
