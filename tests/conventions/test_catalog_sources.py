"""A number without a source is not merged: each catalog table with numbers says where they come from."""

import csv
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escala.calibration import read_rows

DATA = Path(__file__).parents[2] / "src" / "escala" / "catalog" / "data"
TOML = sorted(DATA.rglob("*.toml"))
CSV = sorted(DATA.parents[1].rglob("*.csv"))
QUANTITY = re.compile(r"[-+]?[\d.,_]+(e[-+]?\d+)? [A-Za-zµ$€/]+", re.IGNORECASE)
BOOKKEEPING = {"aliases", "title", "schema", "schema_version", "version"}


def names_source(table: dict[str, Any]) -> bool:
    """Whether a key about a source holds text; a [sources] table is a list to refer to, not a reference."""
    return any("source" in key and value and not isinstance(value, dict) for key, value in table.items())


def has_own_numbers(value: Any) -> bool:
    """Whether a value is a number or a quantity such as "80 GiB", or a list of them."""
    if isinstance(value, list):
        return any(has_own_numbers(each) for each in value if not isinstance(each, dict))
    if isinstance(value, str):
        return QUANTITY.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def unsourced(table: dict[str, Any], path: str = "", covered: bool = False) -> Iterator[str]:
    """Paths of tables that hold numbers while neither they nor a table around them names a source."""
    covered = covered or names_source(table)
    numbers = [key for key, value in table.items() if key not in BOOKKEEPING and has_own_numbers(value)]
    if numbers and not covered:
        yield f"{path or '(top)'}: {', '.join(numbers)}"
    for key, value in table.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict) and not (path == "" and key == "sources"):
                yield from unsourced(each, f"{path}.{key}".lstrip("."), covered)


@pytest.mark.parametrize("path", TOML, ids=lambda path: path.name)
def test_every_number_in_a_table_has_a_source(path: Path):
    assert list(unsourced(tomllib.loads(path.read_text()))) == []


@pytest.mark.parametrize("path", CSV, ids=lambda path: path.name)
def test_every_row_has_a_source(path: Path):
    lines = path.read_text().splitlines()
    if any(line.startswith("#") and "source" in line.lower() for line in lines):
        return
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    published = {row.id for row in read_rows().rows if row.source}

    # a row about a published row has its source
    bare = [row for row in rows if not names_source({key or "": value for key, value in row.items()})]
    assert [row for row in bare if row.get("id") not in published] == []


def test_a_number_without_source_is_found():
    catalog = {
        "sources": {"sheet": {"title": "a data sheet", "pages": 4}},
        "a": {"memory": "80 GB", "source": "sheet", "deep": {"power": 1}},
        "b": {"memory": "96 GB"},
        "c": [{"sizes": [1, 2], "vendor": "x"}],
    }

    assert list(unsourced(catalog)) == ["b: memory", "c: sizes"]
