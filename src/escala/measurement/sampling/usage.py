"""What a command used on a node over its whole time, as data: mean and peak of each resource. Base units."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Mean over time and highest value of one resource."""

    mean: float
    peak: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceUsage:
    """One network interface over the run."""

    name: str
    received_bytes_per_s: Level | None
    sent_bytes_per_s: Level | None
    link_bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """The share of the time in which a GPU gave this reason for a lower clock."""

    reason: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """One GPU over the run; `energy_j` is its counter's, None where it has none."""

    index: int
    uuid: str
    name: str
    busy_share: Level | None
    memory_busy_share: Level | None
    used_bytes: Level | None
    memory_bytes: float | None
    power_w: Level | None
    power_cap_w: float | None
    energy_j: float | None
    sm_clock_hz: Level | None
    memory_clock_hz: Level | None
    temperature_celsius: Level | None
    held_back: tuple[HeldBack, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """What a command used on one node, beside what the whole node used (`machine_`, `disk_`) and has."""

    node: str
    rank: int | None
    began: str
    ended: str
    duration_s: float
    samples: int
    cores: int
    usable_cores: int
    cpu_s: float
    busy_cores: Level | None
    machine_busy_cores: Level | None
    waiting_cores: Level | None
    stolen_cores: Level | None
    context_switches_per_s: Level | None
    throttled_share: float | None
    resident_bytes: Level | None
    proportional_bytes: Level | None
    machine_used_bytes: Level | None
    machine_memory_bytes: float
    swap_used_bytes: Level | None
    container_used_bytes: Level | None
    container_limit_bytes: float | None
    read_bytes_per_s: Level | None
    written_bytes_per_s: Level | None
    disk_read_bytes_per_s: Level | None
    disk_written_bytes_per_s: Level | None
    interfaces: tuple[InterfaceUsage, ...]
    gpus: tuple[GpuUsage, ...]
    packages_energy_j: float | None
