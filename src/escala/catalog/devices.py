"""What clients of a federation compute with: phones, boards, laptops, GPUs. Knows no scenario and no network.

A device has one or more targets (cpu, gpu): what each achieves in training, the power it adds to idle, and
the time of a sample of the networks that were measured on it.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from escala.catalog.loader import Entries, Entry, Quantity, entries, find, shown
from escala.errors import unknown

NUMBERS: Final = {"memory": "bytes", "idle": "w", "start": "s"}
OPTIONAL: Final = {"battery": "j"}
TARGET_NUMBERS: Final = {"rate": "flop_per_s", "power": "w"}
HINT: Final = "see `escala catalog devices`, or describe your own with rate and power"
_TEXTS: Final = {"title", "aliases", "targets", "notes"}


@cache
def device_entries() -> Entries:
    """Every device of the catalog, checked."""
    found = entries("devices")
    for entry in found.values():
        entry.allow({*NUMBERS, *OPTIONAL, *_TEXTS, *entry.texts("targets")})
        entry.text("title")
        if not entry.texts("targets"):
            raise entry.fail("names no targets")
    return found


def devices() -> tuple[str, ...]:
    """Names of all devices."""
    return tuple(device_entries())


def device_name(name: str) -> str:
    """The catalog's name for a device, from any of its names."""
    found = find(name, device_entries())
    if found is None:
        raise unknown("device", shown(name), device_entries(), HINT)
    return found


def device_targets(name: str) -> tuple[str, ...]:
    """The ways in which a device computes."""
    return device_entries()[device_name(name)].texts("targets")


@cache
def device_quantities(name: str) -> Mapping[str, Quantity]:
    """Numbers of the whole device: memory, idle power, start of training, battery where it has one."""
    entry = device_entries()[device_name(name)]
    found = {key: entry.quantity(key, unit) for key, unit in NUMBERS.items()}
    more = {key: entry.optional(key, unit) for key, unit in OPTIONAL.items()}
    return found | {key: number for key, number in more.items() if number is not None}


@cache
def target_quantities(name: str, target: str) -> Mapping[str, Quantity]:
    """Numbers of one target: achieved rate, power above idle, and `sample.NETWORK` where it was measured."""
    inner = device_entries()[device_name(name)].inner(target)
    inner.allow({*TARGET_NUMBERS, "sample"})
    found = {key: inner.quantity(key, unit) for key, unit in TARGET_NUMBERS.items()}
    return found | dict(_samples(inner))


def _samples(target: Entry) -> Iterator[tuple[str, Quantity]]:
    if "sample" in target.table:
        inner = target.inner("sample")
        for network in inner.table:
            yield f"sample.{network}", inner.quantity(network, "s")
