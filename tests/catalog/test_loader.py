from collections.abc import Iterator

import pytest

from escala.catalog.loader import (
    CARBON,
    KINDS,
    RATIO,
    CatalogError,
    Entries,
    Entry,
    Quantity,
    Source,
    entries,
    quantity_of,
)
from escala.errors import EscalaError

WHERE = (
    "accelerators/devices",
    "accelerators/architectures",
    "accelerators/nodes",
    "links",
    "clusters",
    "places/grid",
    "places/pue",
)
SHEET = Source(title="a sheet", publisher="a vendor", date="2024", read="datasheet")


def entry(**table: object) -> Entry:
    return Entry(name="chip", file="chips.toml", table=table, sources={"sheet": SHEET})


def quantity_tables(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        if "value" in value:
            yield value
        for each in value.values():
            yield from quantity_tables(each)
    if isinstance(value, list):
        for each in value:
            yield from quantity_tables(each)


@pytest.mark.parametrize("where", WHERE)
def test_every_value_names_a_source_that_exists(where: str):
    found = entries(where).values()

    unknown = [
        (each.name, table)
        for each in found
        for table in quantity_tables(each.table)
        if table["source"] not in each.sources
    ]

    assert found
    assert unknown == []


@pytest.mark.parametrize("where", WHERE)
def test_every_source_has_title_publisher_date_and_a_known_way_of_reading(where: str):
    sources = [source for each in entries(where).values() for source in each.sources.values()]

    assert all(
        source.title and source.publisher and source.date and source.read in KINDS for source in sources
    )


def test_a_quantity_keeps_text_source_date_condition_and_dissent():
    other = {"value": "90 W", "source": "sheet", "date": "2025"}
    chip = entry(power={"value": "0.1 kW", "source": "sheet", "condition": "board", "also": [other]})

    power = chip.quantity("power", "w")

    assert power == Quantity(
        value=100.0,
        text="0.1 kW",
        unit="w",
        source=SHEET,
        date="2024",
        condition="board",
        kind="datasheet",
        also=(Quantity(value=90.0, text="90 W", unit="w", source=SHEET, date="2025", kind="datasheet"),),
    )


@pytest.mark.parametrize(
    ("given", "unit", "value"),
    [
        ("80 GiB", "bytes", 85899345920.0),
        ("400 Gb/s", "bytes_per_s", 50e9),
        ("989 TFLOP/s", "flop_per_s", 989e12),
        (0.82, RATIO, 0.82),
        ("360 gCO2e/kWh", CARBON, 0.36 / 3.6e6),
    ],
)
def test_values_come_in_base_units(given: object, unit: str, value: float):
    assert quantity_of(given, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "power",
    [
        {"value": "100 W"},
        {"value": "100 W", "source": "elsewhere"},
        {"value": "100 W", "source": "sheet", "colour": "red"},
        {"value": "100 W", "source": "sheet", "kind": "guess"},
        {"value": "100 GiB", "source": "sheet"},
        {"value": "100", "source": "sheet"},
        {"value": 100, "source": "sheet"},
        {"value": "-1 W", "source": "sheet"},
        "100 W",
    ],
)
def test_a_faulty_quantity_names_file_entry_and_key(power: object):
    with pytest.raises(CatalogError, match=r"chips.toml: \[chip\].*(power|elsewhere)"):
        entry(power=power).quantity("power", "w")


def test_a_fault_of_the_catalog_is_no_fault_of_the_user():
    assert not issubclass(CatalogError, EscalaError)


def test_unknown_keys_of_an_entry_are_refused():
    with pytest.raises(CatalogError, match="colour"):
        entry(power={}, colour="red").allow({"power"})


def named(**aliases: list[str]) -> Entries:
    return Entries(
        {
            name: Entry(name=name, file="chips.toml", table={"aliases": others}, sources={})
            for name, others in aliases.items()
        }
    )


def test_an_entry_goes_by_its_name_and_aliases_without_case_and_punctuation():
    names = named(h100=["H100-SXM 80GB", "Hopper"], a100=[]).names

    assert names == {"h100": "h100", "h100sxm80gb": "h100", "hopper": "h100", "a100": "a100"}


def test_an_alias_may_repeat_the_name_of_its_own_entry():
    assert named(h100=["H100", "h-100"]).names == {"h100": "h100"}


@pytest.mark.parametrize("aliases", [{"a": ["B"], "b": []}, {"a": ["x y"], "b": ["X-Y"]}])
def test_two_entries_share_no_name(aliases: dict[str, list[str]]):
    with pytest.raises(CatalogError, match=r"chips.toml: \[b\] shares the name '.+' with \[a\]"):
        _ = named(**aliases).names
