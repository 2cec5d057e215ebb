"""Places: carbon of the grid by country, PUE by operator. Knows no cluster; a price comes from the user."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from escala.catalog.loader import CARBON, RATIO, Entries, Quantity, entries, find, shown
from escala.errors import unknown
from escala.model.cluster import Site

# Power of a node over the sum of its devices: 8.4 kW at most in 8 x H100 / (8 x 650 to 700 W) and 1 / 0.7
# (Dodge et al. 2022); range 1.4 to 1.6.
NODE_POWER_RATIO: Final = 1.5
WORLD_PUE: Final = "world"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a device costs an hour, on which day, said by whom."""

    usd_per_device_hour: float
    date: str
    source: str


@cache
def grid_entries() -> Entries:
    """Carbon of the grid by country code."""
    return _checked("places/grid", {"name", "aliases", "carbon"})


@cache
def pue_entries() -> Entries:
    """PUE by operator."""
    return _checked("places/pue", {"name", "aliases", "pue"})


def countries() -> tuple[str, ...]:
    """Country codes with known carbon of the grid."""
    return tuple(grid_entries())


def operators() -> tuple[str, ...]:
    """Operators with a published PUE."""
    return tuple(pue_entries())


def country_code(country: str) -> str:
    """The two-letter code of a country, from its code or English name."""
    found = find(country, grid_entries())
    if found is None:
        names = [entry.text("name") for entry in grid_entries().values()]
        raise unknown(
            "country", shown(country), [*names, *countries()], f"known are {', '.join(countries())}"
        )
    return found


def grid_carbon(country: str) -> Quantity:
    """Carbon of a country's grid, location based, in kg per joule."""
    return grid_entries()[country_code(country)].quantity("carbon", CARBON)


def operator_pue(operator: str) -> Quantity:
    """PUE of an operator's sites."""
    found = find(operator, pue_entries())
    if found is None:
        raise unknown("operator", shown(operator), pue_entries(), f"known are {', '.join(operators())}")
    return pue_entries()[found].quantity("pue", RATIO)


def site(
    country: str | None = None,
    operator: str | None = None,
    price: Price | None = None,
    node_power_ratio: float = NODE_POWER_RATIO,
) -> Site:
    """Power, place and price: the world's PUE where the operator is unknown, no carbon without a country."""
    return Site(
        node_power_ratio=node_power_ratio,
        pue=operator_pue(operator or WORLD_PUE).value,
        carbon_kg_per_j=None if country is None else grid_carbon(country).value,
        country=None if country is None else country_code(country),
        price_usd_per_device_hour=None if price is None else price.usd_per_device_hour,
        price_date=None if price is None else price.date,
        price_source=None if price is None else price.source,
    )


def _checked(where: str, keys: set[str]) -> Entries:
    found = entries(where)
    for entry in found.values():
        entry.allow(keys)
        entry.text("name")
    return found
