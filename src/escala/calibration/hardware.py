"""From the columns about machines to a cluster: device names, node sizes, link texts. Knows no software.

A link text that names a bandwidth gives it to each device; a text without one keeps the usual node.
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from escala.calibration.failure import Unreadable
from escala.calibration.rows import Row, count
from escala.catalog.accelerators import accelerator_name, node_of
from escala.catalog.clusters import cluster_for
from escala.catalog.links import link
from escala.errors import InvalidInput
from escala.model.cluster import Cluster

# What words of link texts mean where no rate is printed: public pages of the systems.
_PORTS: Final = {
    "hdr200": "200 gb/s",
    "omni-path (hypercube)": "4x 100 gb/s per node",  # Jean Zay, 4-GPU nodes: one Omni-Path link a GPU
    "hdr infiniband": "hdr infiniband 200 gb/s",
    "usable": "",
}
# Networks of the catalog that link texts name.
_NAMED: Final = {
    r"efa.*p5": "efa-v2",
    r"efa.*p6-b300": "efa-v4-800",
    r"efa 400 gb/s per node": "efa-v1",
}
_RATE: Final = re.compile(r"(?:(\d+)\s*x\s?[^,;]*?)?(\d+(?:\.\d+)?)\s*([gt])b(?:it|ps|/s|/sec|e|\b)")
_SAME: Final = 0.02
_TORUS: Final = "tpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A cluster and the fields that had to be assumed for it."""

    cluster: Cluster
    imputed: tuple[str, ...] = ()


def machine(row: Row) -> Machine:
    """The cluster that a row ran on."""
    if not row.devices:
        raise Unreadable("number of devices not printed")
    device = device_name(row)
    try:
        cluster = _slices(row, device) if device.startswith(_TORUS) else _nodes(row, device)
    except InvalidInput as error:
        raise Unreadable("machine not in the catalog") from error
    return Machine(cluster=cluster, imputed=_imputed(row))


def _nodes(row: Row, device: str) -> Cluster:
    per_node = None if row.devices == 1 else row.devices_per_node
    return _cluster(device, row.devices or 0, per_node, _network(row, device))


@cache
def _cluster(device: str, devices: int, per_node: int | None, network: str | None) -> Cluster:
    """The same cluster for all rows that ran on it."""
    return cluster_for(device, devices, devices_per_node=per_node, network=network)


def _slices(row: Row, device: str) -> Cluster:
    """Chips of a torus; several slices meet over the data centre network."""
    devices = row.devices or 0
    slices = count(row.tags.get("slices")) or 1
    chips = devices // slices if slices > 1 else row.devices_per_node or devices
    whole = cluster_for(device, devices)
    if not node_of(device).devices < chips < devices:
        return whole
    wide = cluster_for(device, 2 * node_of(device).levels[-1].domain_devices)
    inside, outside = wide.links[0], wide.links[-1]
    links = (replace(inside, domain_devices=chips), replace(outside, domain_devices=devices))
    return replace(whole, links=links)


def device_name(row: Row) -> str:
    """The catalog's name of the device."""
    if not row.accelerator:
        raise Unreadable("device not printed")
    if row.accelerator.startswith("mixed"):
        raise Unreadable("mixed device types")
    try:
        return accelerator_name(row.accelerator)
    except InvalidInput:
        pass
    try:
        return accelerator_name(row.accelerator.partition("(")[0].strip())
    except InvalidInput as error:
        raise Unreadable("device not in the catalog") from error


def _imputed(row: Row) -> tuple[str, ...]:
    several = (row.devices or 1) > (row.devices_per_node or 8)
    unsized = row.accelerator_gb is None and row.accelerator in ("A100", "H100", "V100")
    link_open = several and not row.link_outside
    return ("link",) * link_open + ("device memory",) * unsized


def _network(row: Row, device: str) -> str | None:
    text = row.link_outside.lower()
    named = next((name for word, name in _NAMED.items() if re.search(word, text)), None)
    if named is not None:
        return named
    per_node = row.devices_per_node or node_of(device).devices
    rate = device_bytes_per_s(row.link_outside, per_node)
    if rate is None or abs(rate / _usual_bytes_per_s(device) - 1) < _SAME:
        return None
    return f"{rate * 8 / 1e9:g} Gb/s"


@cache
def _usual_bytes_per_s(device: str) -> float:
    node = node_of(device)
    return link(node.scale_out, 2, ports_per_device=node.ports_per_device).bytes_per_s


def device_bytes_per_s(text: str, per_node: int) -> float | None:
    """Bandwidth of a link text per device: of the computing part, of what is usable; texts count nodes."""
    plain = text.lower().partition("compute:")[2] or text.lower()
    for word, meaning in _PORTS.items():
        plain = plain.replace(word, meaning or word)
    usable = re.search(r"\((\d+) gb/s usable", plain)
    found = list(_RATE.finditer(f"{usable[1]} gb/s" if usable else plain))
    if not found or "gpu-pcie" in plain:
        return None
    ports, value, prefix = found[-1].groups()
    rate = float(value) * {"g": 1e9, "t": 1e12}[prefix] / 8 * (count(ports) or 1)
    return rate if "per gpu" in plain else rate / per_node
