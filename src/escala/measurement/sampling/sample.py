"""One sample of what a command and its node use, as data: one line of samples.jsonl. Base units.

Amounts (seconds of processors, bytes read, joules, switches) are sums since sampling began, so that a line
that is lost loses nothing. `busy_cores`, `waiting_cores` and `stolen_cores` are means since the last sample.
All else is of the moment. None where nobody says.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

SAMPLE_SCHEMA: Final = "escala/sample@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandUse:
    """The command with all its descendants: processor time, memory, bytes that reached the storage.

    `resident_bytes` counts a shared page once for each process, `proportional_bytes` once in all; the kernel
    has to walk all pages for it, so it is read at most a hundredth of the time.
    """

    processes: int
    cpu_s: float
    busy_cores: float
    resident_bytes: float
    proportional_bytes: float | None
    read_bytes: float | None
    written_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """The whole node, whoever uses it; `usable_cores` are those that affinity and container leave to use.

    `waiting_cores` had nothing to do but wait for a disk, `stolen_cores` the hypervisor gave to others.
    """

    cores: int
    usable_cores: int
    busy_s: float
    busy_cores: float
    waiting_cores: float
    stolen_cores: float
    context_switches: int
    memory_bytes: float
    used_bytes: float
    swap_used_bytes: float
    disk_read_bytes: float | None
    disk_written_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceUse:
    """One network interface; `link_bytes_per_s` is the speed that its driver says."""

    name: str
    received_bytes: float
    sent_bytes: float
    link_bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUse:
    """The container (cgroup) of the sampler: memory without the file cache that can be dropped, its limit.

    `throttled_s` is how long its processes were kept waiting because they had used up their processor time.
    """

    used_bytes: float | None
    limit_bytes: float | None
    throttled_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """One GPU as NVML tells it. `busy_share` is time with some kernel running, not how full the GPU was.

    `held_back_by` are NVML's reasons for a clock below the highest.
    """

    index: int
    uuid: str
    name: str
    busy_share: float | None
    memory_busy_share: float | None
    used_bytes: float | None
    memory_bytes: float | None
    power_w: float | None
    power_cap_w: float | None
    energy_j: float | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_celsius: float | None
    held_back_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageUse:
    """Energy of one processor package, without its memory, as RAPL counts it."""

    name: str
    energy_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One moment of one node: `time` is UTC.

    `elapsed_s` is since the first sample, `interval_s` since the one before, on a clock that never jumps.
    """

    schema: str
    time: str
    node: str
    rank: int | None
    elapsed_s: float
    interval_s: float
    command: CommandUse
    machine: MachineUse
    interfaces: tuple[InterfaceUse, ...]
    container: ContainerUse
    gpus: tuple[GpuUse, ...]
    packages: tuple[PackageUse, ...]


def utc(moment: datetime) -> str:
    """A moment of UTC as text, to the millisecond: '2026-11-30T12:00:00.000Z'."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
