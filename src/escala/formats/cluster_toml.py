"""A user's own cluster.toml (YAML and JSON hold the same keys). Knows the keys, reads; never writes.

name = "our machine"
accelerator = "h100-sxm"        # or a table that changes one: { base = "h100-sxm", power = "500 W" }
devices = 64
devices_per_node = 8            # default: what the accelerator usually has
                                # or several [[groups]] with these keys and `zone`

[[links]]                       # from the inside out; default: the accelerator's usual ones
link = "nvlink4"                # a link of the catalog, whose numbers the other keys replace
domain = 8                      # devices joined; "all" for the last

[[links]]
bandwidth = "400 Gb/s"          # per device, one direction
latency = "25 us"               # of one doubling of the ranks
domain = "all"
oversubscription = 2.0          # also: name, gather_efficiency, reduce_efficiency, in_network_reduction
                                # first link only: torus = [16, 16], wraps = true (or one for each side)

[sites]                         # equal sites, with what one whole site sends to all others
count = 2
bandwidth = "10 Gb/s"
latency = "30 ms"

[host]                          # memory, pcie (a link or a bandwidth), cores
[storage]                       # read, write
[site]                          # country or carbon, operator or pue, node_power_ratio, power_limit,
                                # rack_power_limit, devices_per_rack, and the price of a device-hour:
price_usd_per_device_hour = 2.5
price_date = "2026-11-01"       # a price without a day is refused
price_source = "our contract"
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

from escala.catalog.accelerators import PEAKS, SHARES, accelerator, accelerator_name, node_of
from escala.catalog.clusters import MOST_DEVICES, cluster_for
from escala.catalog.links import link, network
from escala.catalog.loader import CARBON
from escala.catalog.places import NODE_POWER_RATIO, Price, site
from escala.errors import InvalidInput, spoken
from escala.formats.bench_cluster import bench_cluster, bench_of, is_bench
from escala.formats.checked_keys import Keys, Range
from escala.formats.files import read_keys
from escala.formats.other_files import refuse_other
from escala.model.cluster import Accelerator, Cluster, DeviceGroup, Host, Link, Site, Storage, Torus

SCHEMA: Final = "escala/cluster@1"
_GROUP_KEYS: Final = ("accelerator", "devices", "devices_per_node")
_TOP_KEYS: Final = (
    "schema",
    "name",
    "source",
    *_GROUP_KEYS,
    "groups",
    "links",
    "host",
    "storage",
    "site",
    "sites",
)
_LINK_KEYS: Final = (
    "link",
    "name",
    "domain",
    "bandwidth",
    "latency",
    "oversubscription",
    "gather_efficiency",
    "reduce_efficiency",
    "in_network_reduction",
    "torus",
    "wraps",
)
_MOST_SIDES: Final = 6
_SITE_KEYS: Final = (
    "country",
    "carbon",
    "operator",
    "pue",
    "node_power_ratio",
    "power_limit",
    "rack_power_limit",
    "devices_per_rack",
    "price_usd_per_device_hour",
    "price_date",
    "price_source",
)
# Key of an [accelerator] table -> field and unit.
_DEVICE_FIELDS: Final = {
    "memory": ("memory_bytes", "bytes"),
    "memory_rate": ("memory_bytes_per_s", "bytes_per_s"),
    "power": ("power_w", "w"),
    **{peak: (f"{peak}_flop_per_s", "flop_per_s") for peak in PEAKS},
}


def read_cluster(path: str | Path, gpus: int | None = None) -> Cluster:
    """The cluster that a file describes; of the machine that a bench.json measured, `gpus` devices."""
    file = Path(path)
    keys = read_keys(file)
    if is_bench(keys):
        return bench_cluster(bench_of(keys, str(file)), str(file), gpus)
    return cluster_from_keys(keys, str(file))


def cluster_from_keys(keys: Mapping[str, object], origin: str = "cluster") -> Cluster:
    """The cluster that the keys of a file describe; `origin` names the file in messages."""
    top = Keys(origin, "", keys)
    refuse_other(keys, origin, SCHEMA)
    if "schema" in keys and keys["schema"] != SCHEMA:
        raise top.fail(f"schema is {spoken(keys['schema'])}; this escala reads '{SCHEMA}' and bench files")
    if keys and not any(key in keys for key in _TOP_KEYS[1:]):
        raise InvalidInput(
            f"{origin} is no description of a cluster: it has none of {', '.join(_TOP_KEYS[1:])};"
            " give a bench.json or a description"
        )
    top.allow(_TOP_KEYS)
    groups = _groups(top)
    devices = sum(group.devices for group in groups)
    if devices > MOST_DEVICES:
        raise top.fail(f"has {devices:,} devices; at most {MOST_DEVICES:,} are allowed")
    first = groups[0]
    usual = cluster_for(_base_name(top), devices, devices_per_node=first.devices_per_node)
    return Cluster(
        name=top.text("name", Path(origin).stem or "cluster"),
        groups=groups,
        links=_sited(top, _links(top, devices) if "links" in keys else usual.links, groups),
        host=_host(top, usual.host),
        storage=_storage(top),
        site=_site(top, usual.site),
        source=top.text("source", "given by the user"),
    )


def _groups(top: Keys) -> tuple[DeviceGroup, ...]:
    if "groups" not in top.table:
        return (_group(top, "main"),)
    both = [key for key in _GROUP_KEYS if key in top.table]
    if both:
        raise top.fail(f"gives {both[0]} both at the top and in [[groups]]; keep one")
    return tuple(_group(each, each.text("zone", "main")) for each in _group_tables(top))


def _group_tables(top: Keys) -> list[Keys]:
    return top.several("groups", (*_GROUP_KEYS, "zone"))


def _group(keys: Keys, zone: str) -> DeviceGroup:
    device = _device(keys)
    devices = keys.count("devices")
    per_node = keys.count("devices_per_node", min(devices, node_of(_device_base(keys)).devices))
    if "devices_per_node" in keys.table and devices % per_node:
        raise keys.fail(
            f"devices_per_node {per_node:,} does not divide the {devices:,} devices; give nodes of equal size"
        )
    return DeviceGroup(
        accelerator=device, devices=devices, devices_per_node=min(devices, per_node), zone=zone
    )


def _device_base(keys: Keys) -> str:
    given = keys.table.get("accelerator")
    table = _device_keys(keys) if isinstance(given, Mapping) else None
    name = keys.text("accelerator") if table is None else table.text("base")
    try:
        return accelerator_name(name)
    except InvalidInput as error:
        raise keys.fail(str(error)) from None


def _device_keys(keys: Keys) -> Keys:
    return keys.inner("accelerator", ("base", "name", *_DEVICE_FIELDS, *SHARES))


def _device(keys: Keys) -> Accelerator:
    base = accelerator(_device_base(keys))
    if not isinstance(keys.table.get("accelerator"), Mapping):
        return base
    own = _device_keys(keys)
    changes: dict[str, Any] = {
        field: own.quantity(key, unit, None)
        for key, (field, unit) in _DEVICE_FIELDS.items()
        if key in own.table
    }
    changes |= {key: own.number(key, 1.0, Range(low=0.01, high=1.0)) for key in SHARES if key in own.table}
    return replace(base, name=own.text("name", f"{base.name}, changed"), aliases=(), **changes)


def _base_name(top: Keys) -> str:
    return _device_base(_group_tables(top)[0] if "groups" in top.table else top)


def _links(top: Keys, devices: int) -> tuple[Link, ...]:
    tables = top.several("links", _LINK_KEYS)
    for keys in tables[1:]:
        if "torus" in keys.table:
            raise keys.fail("only the first link can be a torus; describe what joins tori as a plain link")
    found = [_link(keys, i, devices) for i, keys in enumerate(tables, 1)]
    for keys, each in zip(tables, found, strict=True):
        if keys.table.get("domain") != "all" and each.domain_devices > devices:
            raise keys.fail(
                f"domain {each.domain_devices:,} is above the {devices:,} devices; give {devices:,} or 'all'"
            )
    first = found[0].domain_devices
    if first < devices and devices % first:
        raise tables[0].fail(f"domain {first:,} does not divide the {devices:,} devices; give one that does")
    for keys, inner, outer in zip(tables[1:], found, found[1:], strict=False):
        if outer.domain_devices <= inner.domain_devices:
            raise keys.fail(
                f"domain {outer.domain_devices:,} is not above the {inner.domain_devices:,} of the link"
                " before; list links from the inside out"
            )
    if found[-1].domain_devices < devices:
        raise tables[-1].fail(
            f"domain {found[-1].domain_devices:,} leaves some of the {devices:,} devices unreached;"
            " add a link with domain = 'all'"
        )
    return tuple(found)


def _sited(top: Keys, links: tuple[Link, ...], groups: tuple[DeviceGroup, ...]) -> tuple[Link, ...]:
    """The links of one site, and the one between sites: bandwidth of a site / its devices for each."""
    if "sites" not in top.table:
        return links
    keys = top.inner("sites", ("count", "bandwidth", "latency"))
    count, devices = keys.count("count"), sum(group.devices for group in groups)
    nodes = [group.devices % (count * group.devices_per_node) for group in groups]
    if count < 2 or len(groups) > 1 or any(nodes):
        raise keys.fail(f"count {count:,} does not deal whole nodes of one kind to at least 2 equal sites")
    for each in ("bandwidth", "latency"):
        if each not in keys.table:
            raise keys.fail(f"lacks {each}; give bandwidth and latency between sites, '10 Gb/s' and '30 ms'")
    inside = devices // count
    bytes_per_s, latency_s = (
        keys.quantity("bandwidth", "bytes_per_s", None),
        keys.quantity("latency", "s", None),
    )
    whole = network(str(keys.table["bandwidth"]), MOST_DEVICES)
    assert bytes_per_s is not None
    assert latency_s is not None
    between = replace(
        whole, name="between sites", bytes_per_s=bytes_per_s / inside, latency_s=latency_s, joins_sites=True
    )
    kept = tuple(each for each in links if each.domain_devices < inside)
    reach = next(each for each in links if each.domain_devices >= inside)
    return (*kept, replace(reach, domain_devices=inside), between)


def _link(keys: Keys, position: int, devices: int) -> Link:
    torus = _torus(keys)
    joined = None if torus is None else math.prod(torus.shape)
    domain = MOST_DEVICES if keys.table.get("domain") == "all" else keys.count("domain", joined)
    if joined not in (None, domain):
        raise keys.fail(
            f"domain is {keys.table['domain']} and the torus has {joined:,} devices; leave it out"
        )
    base = _base_link(keys, domain)
    bytes_per_s = keys.quantity("bandwidth", "bytes_per_s", base.bytes_per_s)
    latency_s = keys.quantity("latency", "s", base.latency_s)
    share = Range(low=0.01, high=2.0)
    return Link(
        name=keys.text("name", base.name if "link" in keys.table else f"link {position}"),
        domain_devices=domain,
        bytes_per_s=base.bytes_per_s if bytes_per_s is None else bytes_per_s,
        latency_s=base.latency_s if latency_s is None else latency_s,
        gather_efficiency=keys.number("gather_efficiency", base.gather_efficiency, share),
        reduce_efficiency=keys.number("reduce_efficiency", base.reduce_efficiency, share),
        oversubscription=keys.number("oversubscription", 1.0, Range(low=1.0, high=1000.0)),
        reduces_in_network=keys.flag("in_network_reduction", base.reduces_in_network),
        message_s=base.message_s,
        torus=torus,
    )


def _torus(keys: Keys) -> Torus | None:
    """The grid of a link without switches: its sides, and which of them close to a ring (all by default)."""
    if "torus" not in keys.table:
        return None
    shape = keys.table["torus"]
    if not isinstance(shape, list) or not 1 <= len(shape) <= _MOST_SIDES or not all(map(_is_side, shape)):
        raise keys.fail(f"torus is {spoken(shape, 60)}; give the number of devices along each side: [16, 16]")
    given = keys.table.get("wraps", True)
    wraps = given if isinstance(given, list) else [given] * len(shape)
    if len(wraps) != len(shape) or not all(isinstance(each, bool) for each in wraps):
        raise keys.fail(f"wraps is {spoken(given, 60)}; write true, false, or one of them for each side")
    return Torus(shape=tuple(shape), wraps=tuple(map(bool, wraps)))


def _is_side(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= MOST_DEVICES


def _base_link(keys: Keys, domain: int) -> Link:
    if "link" in keys.table:
        try:
            return link(keys.text("link"), domain)
        except InvalidInput as error:
            raise keys.fail(str(error)) from None
    if "bandwidth" not in keys.table:
        raise keys.fail("needs link (a name of the catalog) or bandwidth, such as '400 Gb/s' per device")
    keys.quantity("bandwidth", "bytes_per_s", None)
    return network(str(keys.table["bandwidth"]), domain)


def _host(top: Keys, usual: Host) -> Host:
    keys = top.inner("host", ("memory", "pcie", "cores", "memory_rate", "nvme_read", "nvme_write"))
    return replace(
        usual,
        memory_bytes=keys.quantity("memory", "bytes", usual.memory_bytes),
        pcie_bytes_per_s=_pcie(keys, usual.pcie_bytes_per_s),
        cores=keys.count("cores") if "cores" in keys.table else None,
        memory_bytes_per_s=keys.quantity("memory_rate", "bytes_per_s", usual.memory_bytes_per_s),
        nvme_read_bytes_per_s=keys.quantity("nvme_read", "bytes_per_s", usual.nvme_read_bytes_per_s),
        nvme_write_bytes_per_s=keys.quantity("nvme_write", "bytes_per_s", usual.nvme_write_bytes_per_s),
    )


def _pcie(keys: Keys, usual: float | None) -> float | None:
    text = keys.optional_text("pcie")
    if text is None:
        return usual
    try:
        return network(text, 1).bytes_per_s
    except InvalidInput as error:
        raise keys.fail(f"pcie: {error}") from None


def _storage(top: Keys) -> Storage:
    keys = top.inner("storage", ("read", "write"))
    return Storage(
        read_bytes_per_s=keys.quantity("read", "bytes_per_s", None),
        write_bytes_per_s=keys.quantity("write", "bytes_per_s", None),
    )


def _site(top: Keys, usual: Site) -> Site:
    keys = top.inner("site", _SITE_KEYS)
    ratio = Range(low=1.0, high=5.0)
    country, carbon = keys.optional_text("country"), keys.quantity("carbon", CARBON, None)
    operator, price = keys.optional_text("operator"), _price(keys)
    try:
        known = site(country if carbon is None else None, operator, price)
    except InvalidInput as error:
        raise keys.fail(str(error)) from None
    return replace(
        known,
        node_power_ratio=keys.number("node_power_ratio", usual.node_power_ratio or NODE_POWER_RATIO, ratio),
        pue=keys.number("pue", known.pue, ratio),
        carbon_kg_per_j=known.carbon_kg_per_j if carbon is None else carbon,
        country=known.country or country,
        power_limit_w=keys.quantity("power_limit", "w", None),
        rack_power_limit_w=keys.quantity("rack_power_limit", "w", None),
        devices_per_rack=keys.count("devices_per_rack") if "devices_per_rack" in keys.table else None,
    )


def _price(keys: Keys) -> Price | None:
    named = [key for key in ("price_date", "price_source") if key in keys.table]
    if "price_usd_per_device_hour" not in keys.table:
        if named:
            raise keys.fail(f"{named[0]} stands without price_usd_per_device_hour; add it or remove both")
        return None
    usd = keys.number("price_usd_per_device_hour", 0.0, Range(low=0.0, high=1e5))
    if "price_date" not in keys.table:
        raise keys.fail("price_usd_per_device_hour has no price_date; add the day it was true, '2026-11-30'")
    return Price(
        usd_per_device_hour=usd, date=_day(keys), source=keys.text("price_source", "given by the user")
    )


def _day(keys: Keys) -> str:
    given = keys.table["price_date"]
    try:
        day = (
            given if isinstance(given, date) else date.fromisoformat(given if isinstance(given, str) else "")
        )
    except ValueError:
        raise keys.fail(f"price_date is {spoken(given, 60)}; write a day such as '2026-11-30'") from None
    return day.isoformat()[:10]
