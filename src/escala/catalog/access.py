"""How clients reach a server: rates, latency, transfers that arrive, energy of a byte. Knows no client.

The energy is that of the path, an average of all its traffic or a marginal one, as `energy_kind` says: the
two differ by orders of magnitude, and neither is the other.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from escala.catalog.loader import RATIO, TRAFFIC, Entries, Quantity, entries, find, shown
from escala.errors import unknown

NUMBERS: Final = {
    "up": "bytes_per_s",
    "down": "bytes_per_s",
    "latency": "s",
    "arrival": RATIO,
    "energy": TRAFFIC,
}
ENERGY_KINDS: Final = ("average", "marginal")
HINT: Final = "see `escala catalog access`, or describe your own with up, down and energy"


@cache
def access_entries() -> Entries:
    """Every path of the catalog, checked."""
    found = entries("access")
    for entry in found.values():
        entry.allow({*NUMBERS, "title", "aliases", "energy_kind"})
        entry.text("title")
        if entry.text("energy_kind") not in ENERGY_KINDS:
            raise entry.fail(f"has an energy_kind that is none of {', '.join(ENERGY_KINDS)}")
    return found


def access_paths() -> tuple[str, ...]:
    """Names of all paths."""
    return tuple(access_entries())


def access_name(name: str) -> str:
    """The catalog's name for a path, from any of its names."""
    found = find(name, access_entries())
    if found is None:
        raise unknown("access", shown(name), access_entries(), HINT)
    return found


@cache
def access_quantities(name: str) -> Mapping[str, Quantity]:
    """All sourced numbers of one path by field."""
    entry = access_entries()[access_name(name)]
    return {key: entry.quantity(key, unit) for key, unit in NUMBERS.items()}
