"""Where to learn: accelerators, link levels, hosts, storage, power, price. Knows no workload and no plan."""

from dataclasses import dataclass, field
from enum import StrEnum

from escala.model.operations import Operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as a framework sees it: dense peaks per device, memory, power and achieved shares.

    None means that the device cannot do it. `memory_bytes` is what the driver leaves to programs.
    `gemm_efficiency` is the share of the 16-bit peak that large matrix products reach (measured tables),
    `fp32_efficiency` that of the fp32 peak, `fp8_efficiency` and `tf32_efficiency` ratios to the first
    (`fp4_efficiency` where 4-bit products were measured, else that of fp8),
    `flash2_efficiency` and `flash3_efficiency` the share of that which the attention kernel of each
    generation reaches on this chip. `is_calibrated` says that published runs on it took part in the fit.
    `operations` is what a bench timed on a processor; no device of the catalog has it.
    """

    name: str
    vendor: str
    architecture: str
    memory_bytes: float
    memory_bytes_per_s: float
    fp32_flop_per_s: float
    tf32_flop_per_s: float | None
    fp16_flop_per_s: float | None
    bf16_flop_per_s: float | None
    fp8_flop_per_s: float | None
    fp4_flop_per_s: float | None
    power_w: float | None
    gemm_efficiency: float
    fp8_efficiency: float
    fp32_efficiency: float
    tf32_efficiency: float
    memory_efficiency: float
    flash2_efficiency: float | None
    flash3_efficiency: float | None
    fp4_efficiency: float | None = None
    is_consumer: bool = False
    is_calibrated: bool = False
    aliases: tuple[str, ...] = ()
    notes: str = ""
    operations: Operations | None = None


class Collective(StrEnum):
    """What ranks do together over a link, or two of them."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    SEND = "send"
    EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Measured seconds of one operation among so many ranks, in terms of its link.

    Seconds = latency_ratio * latency of the link + wire_ratio * payload / bandwidth of the link, so that a
    link that is changed changes all its lines. Payloads are those of `collectives`.
    """

    operation: Collective
    ranks: int
    latency_ratio: float
    wire_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Torus:
    """Devices in a grid with cables between neighbours: its sizes, and which of them close to a ring."""

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One level of the network: how many devices it joins, and what each device gets in one direction.

    `domain_devices` is the number of devices that reach each other over this level or lower ones; the last
    level joins all. `gather_efficiency` is the achieved share of the bandwidth in all-gather and
    reduce-scatter, `reduce_efficiency` in all-reduce (it may exceed 1 when switches reduce).
    `lines` are what a bench measured, in place of both for groups that cross no other level;
    `hidden_share` is how much of an all-reduce it saw vanish behind computation. `message_s` is what a host
    process needs for each message that a kernel sends, 0 where devices drive the network themselves.
    A `torus` (innermost level only) has cables instead of a switch: the bandwidth is that of all cables of a
    device, the latency that of one hop. `joins_sites` says that its domains are sites far apart.
    """

    name: str
    domain_devices: int
    bytes_per_s: float
    latency_s: float
    gather_efficiency: float
    reduce_efficiency: float
    oversubscription: float = 1.0
    reduces_in_network: bool = False
    message_s: float = 0.0
    lines: tuple[Line, ...] = ()
    hidden_share: float | None = None
    torus: Torus | None = None
    joins_sites: bool = False

    @property
    def cable_bytes_per_s(self) -> float:
        """Speed of one cable in one direction: bandwidth / (2 * dimensions) on a torus, else all of it."""
        return self.bytes_per_s if self.torus is None else self.bytes_per_s / (2 * len(self.torus.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One node beside its devices: memory, the bus to a device, cores, disks. None is unknown, not zero.

    `pcie_bytes_per_s` is one way, of each `uplink_devices` together; nominal unless
    `is_pcie_measured`. `memory_bytes_per_s` is nominal, of all sockets; `nvme_...` of all local disks.
    """

    memory_bytes: float | None = None
    pcie_bytes_per_s: float | None = None
    cores: int | None = None
    is_pcie_measured: bool = False
    uplink_devices: int = 1
    memory_bytes_per_s: float | None = None
    nvme_read_bytes_per_s: float | None = None
    nvme_write_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Shared storage: what all nodes together read and write in a second."""

    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Power, place and price: what turns seconds into joules, grams and money.

    `node_power_ratio` is node power over the sum of its devices; `pue` facility power over IT power.
    """

    node_power_ratio: float
    pue: float
    carbon_kg_per_j: float | None = None
    country: str | None = None
    price_usd_per_device_hour: float | None = None
    price_date: str | None = None
    price_source: str | None = None
    power_limit_w: float | None = None
    rack_power_limit_w: float | None = None
    devices_per_rack: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Devices of one type in one zone."""

    accelerator: Accelerator
    devices: int
    devices_per_node: int
    zone: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cluster was measured: processor and cores of a node, pairs of library and version."""

    fingerprint: str
    processor: str
    cores: int
    software: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Groups of devices, the link levels between them from the innermost outwards, hosts, storage, site.

    `measured` says in words which numbers a measurement gave, and which one, `unmeasured` what stands in for
    those that it lacks; `place` where it was made, `backend` which library sent its messages, where known.
    """

    name: str
    groups: tuple[DeviceGroup, ...]
    links: tuple[Link, ...]
    host: Host = field(default_factory=Host)
    storage: Storage = field(default_factory=Storage)
    site: Site
    source: str = "given by the user"
    measured: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    place: Place | None = None
    backend: str = ""

    @property
    def devices(self) -> int:
        """Devices of all groups together."""
        return sum(group.devices for group in self.groups)

    @property
    def accelerator(self) -> Accelerator:
        """The device type; the first group's when types are mixed (the planner refuses those)."""
        return self.groups[0].accelerator

    @property
    def devices_per_node(self) -> int:
        """Devices in one node of the first group."""
        return self.groups[0].devices_per_node

    @property
    def crossed_links(self) -> tuple[Link, ...]:
        """Levels that some pair of devices crosses: those whose lower domain does not hold all devices."""
        below = (1, *(link.domain_devices for link in self.links[:-1]))
        return tuple(link for link, inner in zip(self.links, below, strict=True) if inner < self.devices)

    @property
    def nodes(self) -> int:
        """Nodes of all groups together, the last one of each group perhaps not full."""
        return sum(-(-group.devices // group.devices_per_node) for group in self.groups)
