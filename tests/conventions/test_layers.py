"""The import contracts in pyproject.toml name every package that they are about."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = {"errors", "units", "model", "catalog", "records", "calibration", "planning", "formats", "advice"}
INTERFACES = {"cli", "web"}


def contract(name: str) -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (each for each in settings if each["id"] == name)
    return set(found["source_modules"])


def existing(names: set[str]) -> set[str]:
    source = ROOT / "src" / "escala"
    modules = {path.stem for path in source.glob("*.py")}
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    return {f"escala.{name}" for name in names & (modules | packages)}


def test_light_core_contract_names_every_core_package():
    assert existing(CORE) <= contract("light-core")


def test_plain_interfaces_contract_names_every_interface():
    assert existing(INTERFACES) <= contract("plain-interfaces")
