"""The document of `escala bench`: what was timed on a machine, fitted and skipped. Times nothing itself.

Schema escala/bench@1. Every number is in a base unit that its name ends in; fields may be added to a version,
never renamed. `bench.json` is written by escala.measurement.bench and read by escala.formats.bench_cluster.
"""

from dataclasses import dataclass, field
from typing import Final

BENCH_SCHEMA: Final = "escala/bench@1"
FINGERPRINT_SCHEMA: Final = "escala/fingerprint@1"
NODE, NETWORK = "node", "network"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One device of the first rank as its driver describes it; None is unknown.

    `topology` are the lines of `nvidia-smi topo -m`: which devices NVLink joins, and which only PCIe.
    """

    kind: str
    name: str
    memory_bytes: float
    devices_in_node: int
    threads: int | None = None
    driver: str | None = None
    clock_hz: float | None = None
    most_clock_hz: float | None = None
    power_cap_w: float | None = None
    pcie: str | None = None
    topology: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One node beside its devices, and what its container may use; None is no limit, or unknown.

    `numa_cores` are the cores of each memory node as the kernel lists them: "0-15,32-47".
    """

    system: str
    processor: str
    cores: int
    numa_nodes: int
    memory_bytes: float | None = None
    container_cores: float | None = None
    container_memory_bytes: float | None = None
    numa_cores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Hash of device, host, versions and ranks: the same hash is the same machine with the same software."""

    schema: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One thing timed on all ranks at once; the samples are those of the rank whose best was slowest.

    `best_s` is the least of `repeats` samples, `typical_s` the mean of those within three times the best,
    `samples_s` at most 32 of all. `flop` and `payload_bytes` are the work of one call; the rates are
    work / best_s. `shape` counts elements.
    """

    part: str
    name: str
    best_s: float
    median_s: float
    repeats: int
    samples_s: tuple[float, ...]
    slowest_rank: int = 0
    fastest_best_s: float | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    level: str = ""
    ranks: int = 1
    flop: float | None = None
    payload_bytes: float | None = None
    flop_per_s: float | None = None
    bytes_per_s: float | None = None
    typical_s: float | None = None

    @property
    def usual_s(self) -> float:
        """What a plan is made with: the typical call; the median one in files that have no typical one.

        A step is a sum of many calls, and of those only few are the best.
        """
        return self.typical_s or self.median_s

    @property
    def usual_bytes_per_s(self) -> float | None:
        """Bytes of one call / seconds of a usual one."""
        return None if self.payload_bytes is None else self.payload_bytes / self.usual_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted value; low and high are the extremes of fits on fifths of the samples."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFit:
    """Seconds of one operation on one link level: alpha_s + beta_s_per_byte * payload.

    Payload: the whole tensor of all-gather and reduce-scatter, each rank's tensor of all-reduce, what a rank
    sends to all in all-to-all. `worst_error` is the largest |fit / best - 1| over the sizes. The line is
    through the best samples of all sizes; the `typical_...` one through means, of the smallest and the two
    largest sizes, and what a plan is made with.
    """

    level: str
    operation: str
    ranks: int
    sizes: int
    alpha_s: Fit
    beta_s_per_byte: Fit
    worst_error: float
    typical_alpha_s: float | None = None
    typical_beta_s_per_byte: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How much of the shorter of computation and communication the other hides when both go at once."""

    level: str
    payload_bytes: float
    compute_s: float
    communication_s: float
    both_s: float
    hidden_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Watts from an energy counter (NVML or RAPL) of the first rank; never from a model."""

    counter: str
    idle_w: float | None = None
    spinning_w: float | None = None
    busy_w: float | None = None
    collective_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One machine as it was measured: the document bench.json and of `escala bench --json`."""

    schema: str
    escala: str
    date: str
    fingerprint: Fingerprint
    device: DeviceFacts
    host: HostFacts
    versions: dict[str, str]
    backend: str
    ranks: int
    ranks_per_node: int
    budget_s: float
    elapsed_s: float
    rounds: int
    is_interrupted: bool
    load: float | None
    timed: tuple[Timed, ...]
    lines: tuple[LineFit, ...]
    overlaps: tuple[Overlap, ...]
    power: Power
    skips: dict[str, str] = field(default_factory=dict)
