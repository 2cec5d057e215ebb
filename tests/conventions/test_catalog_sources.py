"""A number without a source is not merged: each catalog table with numbers says where they come from."""

import csv
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "src" / "escala" / "catalog" / "data"
TOML = sorted(DATA.rglob("*.toml"))
CSV = sorted(DATA.rglob("*.csv"))
BOOKKEEPING = {"schema", "schema_version", "version"}


def names_source(table: dict[str, Any]) -> bool:
    return any("source" in key and value for key, value in table.items())


def has_own_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return any(has_own_numbers(each) for each in value if not isinstance(each, dict))
    return isinstance(value, int | float) and not isinstance(value, bool)


def unsourced(table: dict[str, Any], path: str = "", covered: bool = False) -> Iterator[str]:
    """Paths of tables that hold numbers while neither they nor a table around them names a source."""
    covered = covered or names_source(table)
    numbers = [key for key, value in table.items() if key not in BOOKKEEPING and has_own_numbers(value)]
    if numbers and not covered:
        yield f"{path or '(top)'}: {', '.join(numbers)}"
    for key, value in table.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
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

    assert [row for row in rows if not names_source({key or "": value for key, value in row.items()})] == []


def test_a_number_without_source_is_found():
    catalog = {
        "a": {"memory": 80, "source": "a data sheet", "deep": {"power": 1}},
        "b": {"memory": 96},
        "c": [{"sizes": [1, 2]}],
    }

    assert list(unsourced(catalog)) == ["b: memory", "c: sizes"]
