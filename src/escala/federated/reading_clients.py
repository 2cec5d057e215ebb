"""[[clients]] of a scenario: how many, what they compute with, how they are reached, what data they have."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from escala.catalog.accelerators import accelerator, accelerator_entries, accelerator_name
from escala.catalog.access import ENERGY_KINDS, access_entries, access_name, access_quantities
from escala.catalog.devices import (
    device_entries,
    device_name,
    device_quantities,
    device_targets,
    target_quantities,
)
from escala.catalog.loader import TRAFFIC, Quantity, find, plain
from escala.catalog.places import country_code
from escala.errors import EscalaError, spoken, unknown
from escala.federated.filetable import ANY, POSITIVE, SHARE, Bounds, Table
from escala.federated.ranges import Range, exactly
from escala.federated.scenario import Access, ClientClass, Device, LocalData, Skew, Target
from escala.formats.bench_cluster import bench_cluster, bench_of, is_bench
from escala.formats.files import read_keys
from escala.model.flops import accelerator_peak_flop_per_s
from escala.units import GIB, KWH_J

KEYS: Final = (
    *("name", "count", "device", "access", "hours", "country", "hourly_carbon_g_per_kwh", "dropout_ratio"),
    *("price_usd_per_device_hour", "samples", "sample_size", "growth_samples_per_day"),
    *("skew", "concentration", "labels"),
)
DEVICE_KEYS: Final = (
    "base",
    "bench",
    "name",
    "rate",
    "power",
    "sample",
    "memory",
    "idle",
    "start",
    "battery",
)
ACCESS_KEYS: Final = (
    *("base", "name", "up", "down", "latency", "arrival", "energy", "energy_kind", "price_usd_per_gb"),
)
MOST_CLIENTS: Final = 100_000_000
MOST_SAMPLES: Final = Bounds(low=1, high=10**13)
HOURS: Final = re.compile(r"(\d{1,2})-(\d{1,2})", re.ASCII)
# Accelerators give peaks; training reaches 20 % to 50 % of the dense 16-bit one: an assumption.
ACHIEVED: Final = Range(low=0.2, mid=0.35, high=0.5)
# An idle accelerator draws 5 % to 20 % of its limit: an assumption.
IDLE: Final = Range(low=0.05, mid=0.12, high=0.2)
START_S: Final = Range(low=3.0, mid=8.0, high=20.0)
# A bench measures large products; networks reach 30 % to 100 % of it: an assumption.
OF_PRODUCTS: Final = Range(low=0.3, mid=0.6, high=1.0)


def read_clients(table: Table, network: str) -> ClientClass:
    """One class of clients; `network` is the model's name, for devices on which it was timed."""
    table.allow(KEYS)
    name = table.text("name")
    price = table.optional_number("price_usd_per_device_hour", Bounds(low=0.0, high=1e5))
    return ClientClass(
        name=name,
        clients=table.count("count", Bounds(low=1, high=MOST_CLIENTS)),
        device=read_device(table, network),
        access=read_access(table),
        data=_data(table),
        hours=_hours(table),
        country=read_country(table),
        dropout_ratio=table.number("dropout_ratio", Bounds(low=0.0, high=0.99), 0.0),
        hourly_carbon_kg_per_j=_hourly_carbon(table),
        price_usd_per_device_hour=price,
    )


def read_country(table: Table) -> str | None:
    """The code of a country whose grid is known."""
    given = table.optional_text("country")
    try:
        return None if given is None else country_code(given)
    except EscalaError as error:
        raise table.fail(str(error)) from None


def _data(table: Table) -> LocalData:
    skew = table.word("skew", Skew, Skew.IID)
    return LocalData(
        samples=table.count("samples", MOST_SAMPLES),
        sample_bytes=table.quantity("sample_size", "bytes", POSITIVE),
        growth_samples_per_day=table.number("growth_samples_per_day", Bounds(low=0.0, high=1e12), 0.0),
        skew=skew,
        concentration=table.optional_number("concentration", Bounds(low=1e-3, high=1e6)),
        labels=table.count("labels", Bounds(low=1, high=10**6)) if table.has("labels") else None,
    )


def _hours(table: Table) -> tuple[int, ...]:
    """Hours of a day: "22-6" is 22, 23, 0, ..., 5; or a list; all where nothing is given."""
    given = table.keys.get("hours", "0-24")
    match = HOURS.fullmatch(given) if isinstance(given, str) else None
    if match is not None and int(match[1]) < 24 and int(match[2]) <= 24 and match[1] != match[2]:
        first, end = int(match[1]), int(match[2])
        return tuple(sorted(hour % 24 for hour in range(first, end if end > first else end + 24)))
    found = tuple(_numbers(given, 23))
    if not found or not all(hour.is_integer() for hour in found):
        said = f"hours is {spoken(given, 60)}; write '22-6' (UTC, the end excluded)"
        raise table.fail(f"{said} or a list of 0 to 23")
    return tuple(sorted({int(hour) for hour in found}))


def _hourly_carbon(table: Table) -> tuple[float, ...]:
    key = "hourly_carbon_g_per_kwh"
    found = tuple(_numbers(table.keys.get(key, []), 5000))
    if table.has(key) and len(found) != 24:
        given = spoken(table.keys[key], 60)
        raise table.fail(f"{key} is {given}; give 24 numbers from 0 to 5,000, hour 0 UTC first")
    return tuple(each * 1e-3 / KWH_J for each in found)


def _numbers(given: object, most: float) -> Iterator[float]:
    """The numbers of a list from 0 to the most; nothing where one is none."""
    listed = given if isinstance(given, list) else []
    if all(isinstance(each, int | float) and type(each) is not bool and 0 <= each <= most for each in listed):
        yield from map(float, listed)


def read_device(table: Table, network: str) -> Device:
    """A device of the catalog, one measured by a bench, or a table that describes or changes one."""
    given = table.keys.get("device")
    if not isinstance(given, dict):
        return _known_device(table, table.text("device"), network)
    own = table.inner("device").allow(DEVICE_KEYS)
    if own.has("base") and own.has("bench"):
        raise own.fail("gives base and bench; keep one of them")
    if own.has("base"):
        return _changed(own, _known_device(own, own.text("base"), network))
    if own.has("bench"):
        return _changed(own, _measured(own))
    return _changed(own, None)


def _known_device(table: Table, name: str, network: str) -> Device:
    found = find(name, device_entries())
    if found is not None:
        return _from_catalog(found, network)
    if find(name, accelerator_entries()) is not None:
        return _accelerator(accelerator_name(name))
    names = [*device_entries(), *accelerator_entries()]
    hint = "see `escala catalog devices` and `escala catalog accelerators`, or give rate and power"
    raise table.fail(str(unknown("device", name, names, hint)))


def _from_catalog(name: str, network: str) -> Device:
    known = device_name(name)
    numbers = device_quantities(known)
    battery = numbers.get("battery")
    return Device(
        name=known,
        targets=tuple(_target(known, each, network) for each in device_targets(known)),
        memory_bytes=numbers["memory"].value,
        idle_w=range_from(numbers["idle"]),
        start_s=range_from(numbers["start"]),
        battery_j=None if battery is None else battery.value,
    )


def _target(device: str, target: str, network: str) -> Target:
    numbers = target_quantities(device, target)
    timed = {plain(key.removeprefix("sample.")): each for key, each in numbers.items() if "sample." in key}
    sample = timed.get(plain(network))
    return Target(
        name=target,
        flop_per_s=range_from(numbers["rate"]),
        power_w=range_from(numbers["power"]),
        sample_s=None if sample is None else range_from(sample),
    )


def range_from(number: Quantity) -> Range:
    """The value of the catalog with its ends, where it has any."""
    low = number.value if number.low is None else number.low
    high = number.value if number.high is None else number.high
    return Range(low=low, mid=number.value, high=high)


def scaled(share: Range, value: float) -> Range:
    """A share of a value."""
    return Range(low=share.low * value, mid=share.mid * value, high=share.high * value)


def _accelerator(name: str) -> Device:
    """Rate: a share of the peak; power: limit less idle. Shares are assumptions."""
    known = accelerator(name)
    limit_w = known.power_w or 0.0
    target = Target(
        name="gpu",
        flop_per_s=scaled(ACHIEVED, accelerator_peak_flop_per_s(known)),
        power_w=exactly(limit_w * (1 - IDLE.mid)),
    )
    return Device(
        name=name,
        targets=(target,),
        memory_bytes=known.memory_bytes,
        idle_w=scaled(IDLE, limit_w),
        start_s=START_S,
    )


def _measured(table: Table) -> Device:
    """The device of a bench.json; nobody measured its power, so the table has to say it."""
    file = Path(table.text("bench"))
    keys = read_keys(file if file.exists() else Path(table.origin).parent / file)
    if not is_bench(keys):
        raise table.fail(f"bench {file} is no bench file; make one with `escala bench`")
    for key in ("power", "idle"):
        table.need(key, "a bench does not measure it; write for example '15 W'")
    found = bench_cluster(bench_of(keys, str(file)), str(file)).groups[0].accelerator
    products = found.fp32_flop_per_s * (found.fp32_efficiency or found.gemm_efficiency)
    return Device(
        name=found.name,
        targets=(Target(name="measured", flop_per_s=scaled(OF_PRODUCTS, products), power_w=exactly(0.0)),),
        memory_bytes=found.memory_bytes or 4 * GIB,
        idle_w=exactly(0.0),
        start_s=START_S,
    )


def _changed(own: Table, base: Device | None) -> Device:
    """The base with the numbers of the table; without base everything but start and battery is needed."""
    first = None if base is None else base.targets[0]
    is_own = any(own.has(key) for key in ("rate", "power", "sample"))
    sample = (
        own.range("sample", "s", bounds=POSITIVE) if own.has("sample") else first.sample_s if first else None
    )
    rate = None if first is None else first.flop_per_s
    target = Target(
        name="own" if is_own or first is None else first.name,
        flop_per_s=own.range("rate", "flop_per_s", rate, POSITIVE),
        power_w=own.range("power", "w", None if first is None else first.power_w, POSITIVE),
        sample_s=None if own.has("rate") and not own.has("sample") else sample,
    )
    battery = None if base is None else base.battery_j
    return Device(
        name=own.text("name", "own device" if base is None else f"{base.name}, changed"),
        targets=(target,) if is_own or base is None else base.targets,
        memory_bytes=own.optional_quantity("memory", "bytes", POSITIVE)
        or (own.quantity("memory", "bytes", POSITIVE) if base is None else base.memory_bytes),
        idle_w=own.range("idle", "w", None if base is None else base.idle_w),
        start_s=own.range("start", "s", START_S if base is None else base.start_s),
        battery_j=own.quantity("battery", "j", POSITIVE) if own.has("battery") else battery,
    )


def read_access(table: Table) -> Access:
    """A path of the catalog, or a table that describes or changes one."""
    if not isinstance(table.keys.get("access"), dict):
        return _known_access(table, table.text("access"))
    own = table.inner("access").allow(ACCESS_KEYS)
    base = _known_access(own, own.text("base")) if own.has("base") else None
    kind = own.text("energy_kind", "average" if base is None else base.energy_kind)
    if kind not in ENERGY_KINDS:
        raise own.fail(f"energy_kind is '{kind}'; allowed are {', '.join(ENERGY_KINDS)}")
    price = own.optional_number("price_usd_per_gb", Bounds(low=0.0, high=1e6))
    up, down, energy = _usual(base)
    return Access(
        name=own.text("name", "own path" if base is None else f"{base.name}, changed"),
        up_bytes_per_s=own.range("up", "bytes_per_s", up, POSITIVE),
        down_bytes_per_s=own.range("down", "bytes_per_s", down, POSITIVE),
        latency_s=own.quantity("latency", "s") if own.has("latency") else _latency(base),
        arrival_ratio=own.number("arrival", SHARE, 1.0 if base is None else base.arrival_ratio),
        energy_j_per_byte=own.range("energy", TRAFFIC, energy, ANY),
        energy_kind=kind,
        price_usd_per_byte=None if price is None else price / 1e9,
    )


def _usual(base: Access | None) -> tuple[Range | None, Range | None, Range | None]:
    if base is None:
        return None, None, None
    return base.up_bytes_per_s, base.down_bytes_per_s, base.energy_j_per_byte


def _latency(base: Access | None) -> float:
    return 0.05 if base is None else base.latency_s


def _known_access(table: Table, name: str) -> Access:
    try:
        known = access_name(name)
    except EscalaError as error:
        raise table.fail(str(error)) from None
    numbers = access_quantities(known)
    return Access(
        name=known,
        up_bytes_per_s=range_from(numbers["up"]),
        down_bytes_per_s=range_from(numbers["down"]),
        latency_s=numbers["latency"].value,
        arrival_ratio=numbers["arrival"].value,
        energy_j_per_byte=range_from(numbers["energy"]),
        energy_kind=access_entries()[known].text("energy_kind"),
    )


def assumed_of(given: ClientClass) -> Iterator[str]:
    """What of a class was taken from the catalog though it is an assumption there."""
    device, path = given.device.name, given.access.name
    if device in device_entries():
        marked = [
            key
            for target in device_targets(device)
            for key, each in target_quantities(device, target).items()
            if each.kind in ("assumption", "recalled") and "sample." not in key
        ]
        if marked:
            names = " and ".join(dict.fromkeys(marked))
            yield f"{given.name}: nobody measured {names} of {device} (escala catalog devices/{device})"
    if any(each.power_w.high == 0 for each in given.device.targets):
        yield f"{given.name}: nobody knows the power of {device}, so its training counts 0 W (device.power)"
    if path in access_entries():
        yield f"{given.name}: rates of {path} are assumptions (escala catalog access/{path})"
