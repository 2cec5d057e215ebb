"""Accelerators by name, and the node each usually sits in. Knows no cluster and no workload.

A device's achieved shares stand in its own entry where they were measured or fitted on it, else in
data/accelerators/architectures.toml, by architecture.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from escala.catalog.fitted import factor_of, fitted
from escala.catalog.loader import RATIO, Entries, Entry, Quantity, Source, entries, find, shown
from escala.errors import unknown
from escala.model.cluster import Accelerator

PEAKS: Final = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
SHARES: Final = (
    "gemm_efficiency",
    "fp8_efficiency",
    "memory_efficiency",
    "fp32_efficiency",
    "tf32_efficiency",
    "fp4_efficiency",
    "flash2_efficiency",
    "flash3_efficiency",
)
FIELDS: Final = {
    "memory_nominal": "bytes",
    "memory": "bytes",
    "memory_rate": "bytes_per_s",
    **dict.fromkeys(PEAKS, "flop_per_s"),
    "power": "w",
    **dict.fromkeys(SHARES, RATIO),
}
_TEXTS: Final = {"vendor", "architecture", "aliases", "notes", "node", "released", "market"}
_NODE_KEYS: Final = {
    "title",
    "source",
    "devices",
    "levels",
    "scale_out",
    "ports_per_device",
    "host_link",
    "host_memory",
    "host_memory_rate",
    "uplink_devices",
    "nvme_read",
    "nvme_write",
    "node_power_ratio",
}
# Share of the nominal memory that driver and firmware leave to programs where nobody published it.
USABLE_SHARE: Final = 0.985


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A link by name, how many devices it joins, and how many of its ports each has.

    `torus` has the sizes of a grid of cables, a part of which closes to a ring along a dimension whose size
    is a multiple of `wrap_multiple`.
    """

    link: str
    domain_devices: int
    ports_per_device: float = 1.0
    oversubscription: float = 1.0
    torus: tuple[int, ...] = ()
    wrap_multiple: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The machine a device usually sits in: devices, links by name, host memory.

    `levels` joins more than `devices` where the fast domain spans several nodes. `ports_per_device` is a
    device's share of the scale-out ports.
    """

    title: str
    source: Source
    devices: int
    levels: tuple[Level, ...]
    scale_out: str
    ports_per_device: float
    host_link: str | None
    host_memory: Quantity | None
    host_memory_rate: Quantity | None
    nvme_read: Quantity | None
    nvme_write: Quantity | None
    uplink_devices: int
    node_power_ratio: Quantity | None


@cache
def accelerator_entries() -> Entries:
    """Every accelerator of the catalog, checked."""
    found = entries("accelerators/devices")
    for entry in found.values():
        entry.allow({*FIELDS, *_TEXTS})
        if entry.text("architecture") not in _architectures() or entry.text("node") not in _nodes():
            raise entry.fail("names an architecture or a node that the catalog lacks")
    return found


def accelerators() -> tuple[str, ...]:
    """Names of all accelerators."""
    return tuple(accelerator_entries())


def accelerator_name(name: str) -> str:
    """The catalog's name for an accelerator, from any of its names."""
    found = find(name, accelerator_entries())
    if found is None:
        hint = "see `escala catalog accelerators` for all of them"
        raise unknown("accelerator", shown(name), [*accelerators(), *_aliases()], hint)
    return found


@cache
def accelerator(name: str) -> Accelerator:
    """One device, from any of its names."""
    known = accelerator_name(name)
    entry = accelerator_entries()[known]
    numbers = {key: number.value for key, number in accelerator_quantities(known).items()}
    return Accelerator(
        name=known,
        vendor=entry.text("vendor"),
        architecture=entry.text("architecture"),
        memory_bytes=numbers["memory"],
        memory_bytes_per_s=numbers["memory_rate"],
        fp32_flop_per_s=numbers["fp32"],
        tf32_flop_per_s=numbers.get("tf32"),
        fp16_flop_per_s=numbers.get("fp16"),
        bf16_flop_per_s=numbers.get("bf16"),
        fp8_flop_per_s=numbers.get("fp8"),
        fp4_flop_per_s=numbers.get("fp4"),
        power_w=numbers.get("power"),
        gemm_efficiency=numbers["gemm_efficiency"],
        fp8_efficiency=numbers["fp8_efficiency"],
        fp32_efficiency=numbers["fp32_efficiency"],
        tf32_efficiency=numbers["tf32_efficiency"],
        fp4_efficiency=numbers.get("fp4_efficiency"),
        memory_efficiency=numbers["memory_efficiency"],
        flash2_efficiency=numbers.get("flash2_efficiency"),
        flash3_efficiency=numbers.get("flash3_efficiency"),
        is_consumer=entry.text("market", "") == "consumer",
        is_calibrated=known in fitted().accelerators,
        aliases=entry.texts("aliases"),
        notes=entry.text("notes", ""),
    )


@cache
def accelerator_quantities(name: str) -> Mapping[str, Quantity]:
    """All sourced numbers of one accelerator by field; what it cannot do is absent."""
    entry = accelerator_entries()[accelerator_name(name)]
    family = _architectures()[entry.text("architecture")]
    found: dict[str, Quantity] = {}
    for key, unit in FIELDS.items():
        number = entry.optional(key, unit) or (family.optional(key, unit) if key in SHARES else None)
        if number is not None:
            found[key] = number
        elif key == "memory":
            found[key] = _usable(found["memory_nominal"], _assumed(family))
    missing = {"memory_rate", "fp32", *SHARES[:5]} - set(found)
    if missing:
        raise entry.fail(f"lacks {sorted(missing)}")
    names = (entry.name, entry.text("architecture"))
    return {key: _fitted(number, names, key) for key, number in found.items()}


def _fitted(before: Quantity, names: tuple[str, ...], key: str) -> Quantity:
    """The number times the factor that published runs put on it; the one before stands beside it."""
    factor = factor_of("accelerator", names, key)
    if factor is None:
        return before
    source, value = fitted().source, before.value * factor
    return replace(
        before,
        value=value,
        text=f"{value:.3g}",
        source=source,
        date=source.date,
        condition=f"{factor:.3f} times the value before the fit",
        kind="fit",
        low=None,
        high=None,
        also=(replace(before, also=()), *before.also),
    )


@cache
def node_of(name: str) -> Node:
    """The node that an accelerator usually sits in."""
    entry = _nodes()[accelerator_entries()[accelerator_name(name)].text("node")]
    return Node(
        title=entry.text("title"),
        source=entry.source(),
        devices=entry.count("devices"),
        levels=levels_of(entry),
        scale_out=entry.text("scale_out"),
        ports_per_device=float(entry.table.get("ports_per_device", 1.0)),
        host_link=entry.text("host_link", "") or None,
        host_memory=entry.optional("host_memory", "bytes"),
        host_memory_rate=entry.optional("host_memory_rate", "bytes_per_s"),
        nvme_read=entry.optional("nvme_read", "bytes_per_s"),
        nvme_write=entry.optional("nvme_write", "bytes_per_s"),
        uplink_devices=entry.count("uplink_devices") if "uplink_devices" in entry.table else 1,
        node_power_ratio=entry.optional("node_power_ratio", RATIO),
    )


def levels_of(entry: Entry) -> tuple[Level, ...]:
    """The `levels` of a node or a cluster from the inside out; each joins more than the one before."""
    try:
        found = tuple(Level(**level) for level in entry.table["levels"])
    except (KeyError, TypeError) as error:
        raise entry.fail(f"has levels that are no links: {error}") from error
    joined = [level.domain_devices for level in found]
    if joined != sorted(set(joined)):
        raise entry.fail(f"has levels that do not grow: {joined}")
    return found


def _usable(nominal: Quantity, source: Source) -> Quantity:
    return replace(
        nominal,
        value=nominal.value * USABLE_SHARE,
        text=f"{USABLE_SHARE:g} x {nominal.text}",
        source=source,
        date=source.date,
        condition="left to programs, not published for this device",
        kind="assumption",
        also=(),
    )


def _assumed(entry: Entry) -> Source:
    return entry.sources["assumption"]


@cache
def _architectures() -> Entries:
    found = entries("accelerators/architectures")
    for entry in found.values():
        entry.allow(SHARES)
    return found


@cache
def _nodes() -> Entries:
    found = entries("accelerators/nodes")
    for entry in found.values():
        entry.allow(_NODE_KEYS)
    return found


def _aliases() -> list[str]:
    return [alias for entry in accelerator_entries().values() for alias in entry.texts("aliases")]
