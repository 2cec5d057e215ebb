"""Flower's own validator: it refuses the apps in which escala finds errors, and takes the others."""

import warnings
from pathlib import Path

import pytest

from escala.foreign.findings import Severity
from escala.foreign.jobs import read_job
from foreign.flower.test_flower_reading import APP, CASES
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its command line uses names that click is about to drop
    flower = needed("flower", "flwr.cli.config_utils")
OTHER = ("flower-share",)
"""Refused by the strategy when it runs."""


def refused(path: Path) -> bool:
    """Whether Flower takes no app from a file; it does not import the app."""
    try:
        flower.load_and_validate(path, check_module=False)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(("old", "new", "expected"), CASES)
def test_flower_refuses_what_is_an_error(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(APP.replace(old, new))
    found = read_job([str(path)], {}, {}).findings
    errors = [each.rule for each in found if each.severity is Severity.ERROR and each.rule not in OTHER]

    assert refused(path) == bool(errors)


def test_flower_takes_a_sound_app(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(APP)

    assert not refused(tmp_path / "pyproject.toml")
