"""The fit that is shipped: it belongs to the data, and its figures hold for all shipped rows."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from escala.calibration import read_rows
from escala.calibration.validation import validate
from escala.catalog.loader import data_file, read_toml

SCRIPT = Path(__file__).parents[2] / "scripts" / "fit.py"
ONE_POINT = 0.01


@cache
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run() -> dict[str, Any]:
    """What the fit wrote of itself."""
    return read_toml(data_file("fitted.toml"))["run"]


def test_the_fit_belongs_to_the_rows_and_the_free_numbers():
    assert script().main(["--check"]) == 0, "run scripts/fit"


def test_other_rows_make_the_fit_stale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    rows, before = tmp_path / "rows.csv.gz", script().digest()
    rows.write_bytes(script().ROWS.read_bytes() + b"0")
    monkeypatch.setattr(script(), "ROWS", rows)

    assert script().digest() != before
    assert script().main(["--check"]) == 1


@pytest.mark.slow
def test_errors_of_all_shipped_rows_are_at_most_a_point_above_those_of_the_fit():
    """A change of the model that costs more than a point asks for a new fit or is a regression."""
    time, then = validate(read_rows()).scores.time, run()

    assert time is not None
    figures = {
        "mean": (then["mean_error"], time.mape),
        "median": (then["median_error"], time.median_absolute_error),
    }
    for name, (fit, now) in figures.items():
        print(f"\n{name} error of the step time: {fit:.2%} in the fit, {now:.2%} now")
    # rows that can be read since the catalog has their networks; the fit has not seen them
    since = ("extra_380", "mbridge_003", "mbridge_004")
    assert time.rows == then["rows"] + len(since)
    assert {name: pair for name, pair in figures.items() if pair[1] > pair[0] + ONE_POINT} == {}


def test_residuals_are_those_of_the_run():
    """The table of errors and the figures come from one fit."""
    path = script().RESIDUALS
    table = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=(1, 2))

    for errors, name in zip(table.T, ("", "left_out_"), strict=True):
        off = np.abs(np.expm1(errors))
        # four digits are written
        assert (off.mean(), np.median(off)) == pytest.approx(
            (run()[f"{name}mean_error"], run()[f"{name}median_error"]), abs=1e-4
        )
    assert len(table) == run()["rows"]
