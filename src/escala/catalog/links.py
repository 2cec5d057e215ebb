"""Links by name, or from a bandwidth such as "400 Gb/s". Knows no cluster: the caller says whom they join."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Final

from escala import units
from escala.catalog.loader import RATIO, Entries, Quantity, entries, find, shown
from escala.errors import InvalidInput, unknown
from escala.model.cluster import Link

FIELDS: Final = {
    "bandwidth": "bytes_per_s",
    "gather_efficiency": RATIO,
    "reduce_efficiency": RATIO,
    "latency": "s",
}
OPTIONAL: Final = {"message": "s"}  # of networks that only the host can drive
_KEYS: Final = {*FIELDS, *OPTIONAL, "title", "aliases", "reduces_in_network"}
HINT: Final = "see `escala catalog links`, or give a bandwidth per device such as '400 Gb/s'"

# Below this a network is taken for Ethernet with TCP, from it on for RDMA: an assumption.
_RDMA_BYTES_PER_S: Final = 50e9 / 8


@cache
def link_entries() -> Entries:
    """Every link of the catalog, checked."""
    found = entries("links")
    for entry in found.values():
        entry.allow(_KEYS)
        entry.text("title")
    return found


def links() -> tuple[str, ...]:
    """Names of all links."""
    return tuple(link_entries())


def link_name(name: str) -> str:
    """The catalog's name for a link, from any of its names."""
    found = find(name, link_entries())
    if found is None:
        raise unknown("link", shown(name), link_entries(), HINT)
    return found


@cache
def link_quantities(name: str) -> Mapping[str, Quantity]:
    """All sourced numbers of one link by field."""
    entry = link_entries()[link_name(name)]
    found = {key: entry.quantity(key, unit) for key, unit in FIELDS.items()}
    more = {key: entry.optional(key, unit) for key, unit in OPTIONAL.items()}
    return found | {key: quantity for key, quantity in more.items() if quantity is not None}


def link(
    name: str, domain_devices: int, *, ports_per_device: float = 1.0, oversubscription: float = 1.0
) -> Link:
    """A link of the catalog that joins `domain_devices`; each device has `ports_per_device` of its ports."""
    known = link_name(name)
    numbers = link_quantities(known)
    return Link(
        name=known,
        domain_devices=domain_devices,
        bytes_per_s=numbers["bandwidth"].value * ports_per_device,
        latency_s=numbers["latency"].value,
        gather_efficiency=numbers["gather_efficiency"].value,
        reduce_efficiency=numbers["reduce_efficiency"].value,
        oversubscription=oversubscription,
        reduces_in_network=bool(link_entries()[known].table.get("reduces_in_network", False)),
        message_s=numbers["message"].value if "message" in numbers else 0.0,
    )


def network(text: str, domain_devices: int) -> Link:
    """A link from its name, or from a bandwidth per device: RDMA from 50 Gb/s on, below it TCP."""
    known = find(text, link_entries())
    if known is not None:
        return link(known, domain_devices)
    if not text.strip()[:1].isdigit():
        raise unknown("network", shown(text), link_entries(), HINT)
    bytes_per_s = units.parse(text, "bytes_per_s")
    if not 0 < bytes_per_s < math.inf:
        raise InvalidInput(f"network '{text}' is not above zero; write for example '400 Gb/s' per device")
    base = link("roce-400g" if bytes_per_s >= _RDMA_BYTES_PER_S else "eth-25g", domain_devices)
    return Link(
        name=f"network at {text.strip()}",
        domain_devices=domain_devices,
        bytes_per_s=bytes_per_s,
        latency_s=base.latency_s,
        gather_efficiency=base.gather_efficiency,
        reduce_efficiency=base.reduce_efficiency,
    )
