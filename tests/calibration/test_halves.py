"""One half of a published source corrects the other half, as the table of docs/how-to/calibrate.md says."""

import csv
import importlib
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
ROWS = list(csv.DictReader((ROOT / "docs" / "data" / "halves.csv").read_text().splitlines()))


@cache
def script() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    return importlib.import_module("halves")


def test_every_source_stands_with_both_halves():
    assert [row["source"] for row in ROWS] == [source for source in script().SOURCES for _ in (1, 2)]
    for one, other in zip(ROWS[::2], ROWS[1::2], strict=True):
        assert (one["own_runs"], one["held_runs"]) == (other["held_runs"], other["own_runs"])


def test_the_table_is_what_the_script_computes_for_its_smallest_source():
    smallest = next(each for each in script().read_unseen() if each.source == "torchtitan")

    halves = [asdict(each) for each in script().halves(smallest)]

    for computed, row in zip(halves, [row for row in ROWS if row["source"] == "torchtitan"], strict=True):
        # the digits of the file: the slopes are computed anew from numbers with six digits
        assert {name: pytest.approx(float(row[name]), abs=1e-4) for name in row if name != "source"} == {
            name: value for name, value in computed.items() if name != "source"
        }


def test_every_half_is_predicted_better_after_the_other():
    assert [row for row in ROWS if float(row["after"]) >= float(row["before"])] == []
