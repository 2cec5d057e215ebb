"""Clusters: by name from the catalog, or built from a device type and a count. Knows no file of a user."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from typing import Final

from escala.catalog.accelerators import Level, Node, accelerator, accelerator_name, levels_of, node_of
from escala.catalog.links import link, link_quantities
from escala.catalog.links import network as network_link
from escala.catalog.loader import RATIO, Entries, Quantity, entries, find, shown
from escala.catalog.places import NODE_POWER_RATIO, site
from escala.errors import InvalidInput, unknown
from escala.model.cluster import Cluster, DeviceGroup, Host, Link, Storage, Torus

MOST_DEVICES: Final = 1_000_000
_STORAGE: Final = ("storage_read", "storage_write")
_KEYS: Final = {
    "title",
    "aliases",
    "source",
    "accelerator",
    "devices",
    "devices_per_node",
    "levels",
    "country",
    "pue_operator",
    "host_memory",
    "node_power_ratio",
    "topology",
    "notes",
    *_STORAGE,
}


@cache
def cluster_entries() -> Entries:
    """Every cluster of the catalog, checked."""
    found = entries("clusters")
    for entry in found.values():
        entry.allow(_KEYS)
        if levels_of(entry)[-1].domain_devices != entry.count("devices"):
            raise entry.fail("has an outermost level that does not join all devices")
    return found


def clusters() -> tuple[str, ...]:
    """Names of all clusters."""
    return tuple(cluster_entries())


def cluster_name(name: str) -> str:
    """The catalog's name for a cluster."""
    found = find(name, cluster_entries())
    if found is None:
        hint = "see `escala catalog clusters`, or write a cluster.toml"
        raise unknown("cluster", shown(name), cluster_entries(), hint)
    return found


def cluster(name: str, gpus: int | None = None) -> Cluster:
    """A cluster of the catalog, or the part of it that holds `gpus` devices."""
    known = cluster_name(name)
    entry = cluster_entries()[known]
    whole = entry.count("devices")
    devices = whole if gpus is None else device_count(gpus)
    if devices > whole:
        raise InvalidInput(f"cluster '{known}' has {whole} devices and {gpus} were asked for; ask for fewer")
    device = accelerator_name(entry.text("accelerator"))
    ratio = entry.optional("node_power_ratio", RATIO) or node_of(device).node_power_ratio
    read, write = (entry.optional(key, "bytes_per_s") for key in _STORAGE)
    return Cluster(
        name=known if devices == whole else f"{known}, {devices} of {whole} devices",
        groups=(_group(device, devices, entry.count("devices_per_node")),),
        links=_links(levels_of(entry), devices),
        host=_host(node_of(device), entry.optional("host_memory", "bytes"), is_usual=True),
        storage=Storage(
            read_bytes_per_s=None if read is None else read.value,
            write_bytes_per_s=None if write is None else write.value,
        ),
        site=site(
            entry.text("country", "") or None,
            entry.text("pue_operator", "") or None,
            node_power_ratio=NODE_POWER_RATIO if ratio is None else ratio.value,
        ),
        source=entry.source().title,
    )


def cluster_for(
    gpu: str,
    gpus: int,
    *,
    devices_per_node: int | None = None,
    network: str | None = None,
    name: str | None = None,
) -> Cluster:
    """`gpus` devices of one type in the nodes they usually sit in.

    `network` is a link of the catalog or a bandwidth per device, such as "400 Gb/s". The last node is not
    full when `gpus` is no multiple of the node; the cluster's name says so.
    """
    devices = device_count(gpus)
    device = accelerator_name(gpu)
    node = node_of(device)
    per_node = (
        node.devices if devices_per_node is None else device_count(devices_per_node, "devices_per_node")
    )
    ratio = node.node_power_ratio
    return Cluster(
        name=name or _title(device, devices, per_node),
        groups=(_group(device, devices, per_node),),
        links=_default_links(node, devices, per_node, network),
        # a node of another size is another machine, whose memory nobody told
        host=_host(
            node, node.host_memory if per_node == node.devices else None, is_usual=per_node == node.devices
        ),
        site=site(node_power_ratio=NODE_POWER_RATIO if ratio is None else ratio.value),
        source=f"default node: {node.title}",
    )


def device_count(given: object, what: str = "gpus") -> int:
    """A count of devices, 1 to 1,000,000."""
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_DEVICES:
        raise InvalidInput(f"{what}={given} is not allowed; give a whole number from 1 to {MOST_DEVICES:,}")
    return given


def _links(levels: Sequence[Level], devices: int) -> tuple[Link, ...]:
    return tuple(_link(level, devices) for level in levels)


def _link(level: Level, devices: int | None = None) -> Link:
    found = link(
        level.link,
        level.domain_devices,
        ports_per_device=level.ports_per_device,
        oversubscription=level.oversubscription,
    )
    if not level.torus:
        return found
    count = level.domain_devices if devices is None else min(devices, level.domain_devices)
    shape = slice_shape(tuple(level.torus), count)
    wraps = tuple(size % level.wrap_multiple == 0 for size in shape)
    return replace(found, domain_devices=count, torus=Torus(shape=shape, wraps=wraps))


def slice_shape(whole: tuple[int, ...], devices: int) -> tuple[int, ...]:
    """The block of a torus that holds so many devices and is nearest to a cube, short sides first.

    Clouds rent such blocks: 64 chips of a pod of 16 x 16 are 8 x 8. Source: Cloud TPU documentation, v5p.
    """
    shapes = [
        shape
        for shape in product(*([d for d in range(1, size + 1) if devices % d == 0] for size in sorted(whole)))
        if prod(shape) == devices and list(shape) == sorted(shape)
    ]
    if not shapes:
        sizes = " x ".join(map(str, whole))
        raise InvalidInput(f"{devices:,} devices are no block of a torus of {sizes}; ask for another number")
    return min(shapes, key=sum)


def _default_links(node: Node, devices: int, per_node: int, text: str | None) -> tuple[Link, ...]:
    inside = [_link(level) for level in _resized(node, per_node)]
    outside = (
        link(node.scale_out, MOST_DEVICES, ports_per_device=node.ports_per_device)
        if text is None
        else network_link(text, MOST_DEVICES)
    )
    return (*inside, outside)


def _resized(node: Node, per_node: int) -> list[Level]:
    """The node's levels for another node size; a domain that spans whole nodes keeps its size."""
    if not node.levels:
        return []
    fits = [level for level in node.levels[:-1] if level.domain_devices < per_node]
    last = node.levels[-1]
    spans = last.domain_devices > node.devices and last.domain_devices % per_node == 0
    return [*fits, last if spans else replace(last, domain_devices=per_node)]


def _group(device: str, devices: int, per_node: int) -> DeviceGroup:
    return DeviceGroup(
        accelerator=accelerator(device), devices=devices, devices_per_node=min(devices, per_node)
    )


def _host(node: Node, memory: Quantity | None, *, is_usual: bool) -> Host:
    link = None if node.host_link is None else link_quantities(node.host_link)["bandwidth"].value
    if not is_usual:
        return Host(memory_bytes=None, pcie_bytes_per_s=link)
    rate, read, write = (
        None if number is None else number.value
        for number in (node.host_memory_rate, node.nvme_read, node.nvme_write)
    )
    return Host(
        memory_bytes=None if memory is None else memory.value,
        pcie_bytes_per_s=link,
        uplink_devices=node.uplink_devices,
        memory_bytes_per_s=rate,
        nvme_read_bytes_per_s=read,
        nvme_write_bytes_per_s=write,
    )


def _title(device: str, devices: int, per_node: int) -> str:
    nodes, rest = divmod(devices, per_node)
    if nodes == 0 or (nodes == 1 and rest == 0):
        return f"{devices} x {device}, 1 node"
    if rest == 0:
        return f"{devices} x {device}, {nodes} nodes"
    return f"{devices} x {device}, {nodes} nodes of {per_node} and one of {rest}"
