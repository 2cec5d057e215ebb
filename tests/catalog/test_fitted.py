"""Factors that published runs put on the catalog: values are record times factor, shares stay shares."""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from escala.catalog import fitted as module
from escala.catalog.accelerators import SHARES, accelerator, accelerator_quantities, accelerators
from escala.catalog.engines import assumption_settings, engine, engine_settings, engines
from escala.catalog.fitted import Factor, factor_of, fitted
from escala.catalog.loader import CatalogError
from escala.model.assumptions import Assumptions
from escala.model.efficiency import gemm_share
from escala.model.engine import EngineTime

DATA = files("escala.catalog") / "data"
FACTORS = fitted().factors
FAMILIES = {name: accelerator(name).architecture for name in accelerators()}


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))


def product(of: str, names: set[str], field: str) -> float:
    """Of the factors in the file, by its words alone."""
    listed = table("fitted")["parameter"]
    fit = [each for each in listed if (each["of"], each["field"]) == (of, field)]
    return math.prod(each["factor"] for each in fit if not each["names"] or names & set(each["names"]))


def test_every_factor_is_named_once():
    names = [factor.name for factor in FACTORS]

    assert names
    assert len(names) == len(set(names))


@pytest.mark.parametrize("factor", FACTORS, ids=lambda factor: factor.name)
def test_a_factor_touches_what_the_catalog_has(factor: Factor):
    known = {"accelerator": {*FAMILIES, *FAMILIES.values()}, "engine": set(engines()), "assumption": set()}
    numbers = {
        "accelerator": set(SHARES),
        "engine": {field.name for field in fields(EngineTime) if field.type is float},
        "assumption": {field.name for field in fields(Assumptions)},
    }

    assert set(factor.names) <= known[factor.of]
    assert factor.field in numbers[factor.of]
    assert (factor.factor > 0, factor.sd >= 0, 0 <= factor.share <= 1) == (True, True, True)


def test_calibrated_engines_and_accelerators_exist_and_know_it():
    assert fitted().engines <= set(engines())
    assert fitted().accelerators <= set(accelerators())
    assert {name for name in engines() if engine(name).is_calibrated} == fitted().engines
    assert {name for name in accelerators() if accelerator(name).is_calibrated} == fitted().accelerators


@pytest.mark.parametrize("name", engines())
def test_a_number_of_an_engine_is_its_record_times_the_factor(name: str):
    record, settings = table(f"engines/{name}"), engine_settings(name)["time"]
    records, whose = record["time"], record.get("like", name)
    numbers = {field: number for field, number in settings.items() if isinstance(number.value, float)}

    expected = {field: records[field]["value"] * product("engine", {whose}, field) for field in numbers}
    assert {field: n.value for field, n in numbers.items()} == pytest.approx(expected, rel=1e-12)
    moved = {field for field in numbers if factor_of("engine", (whose,), field) is not None}
    assert {field for field in moved if numbers[field].source != fitted().source} == set()
    assert {
        field for field in moved if f"{records[field]['value']:g}" not in numbers[field].condition
    } == set()


def test_a_shared_constant_is_its_record_times_the_factor():
    records, settings = table("assumptions"), assumption_settings()

    expected = {field: records[field]["value"] * product("assumption", set(), field) for field in settings}
    assert {field: number.value for field, number in settings.items()} == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", accelerators())
def test_a_number_of_a_chip_is_its_record_times_the_factor_and_keeps_the_record(name: str):
    names = {name, FAMILIES[name]}
    moved = [
        n for n in accelerator_quantities(name).items() if factor_of("accelerator", names, n[0]) is not None
    ]

    for field, number in moved:
        before = number.also[0]
        assert number.value == pytest.approx(before.value * product("accelerator", names, field), rel=1e-12)
        assert (number.kind, number.source) == ("fit", fitted().source)
        assert before.source != fitted().source
    fit = {
        field for field, number in accelerator_quantities(name).items() if number.source == fitted().source
    }
    assert fit == {field for field, _ in moved}


def shares(name: str) -> Iterator[tuple[str, float]]:
    chip = accelerator(name)
    for peak in ("bf16", "fp8", "fp4", "tf32", "fp32"):
        yield f"{peak} products", gemm_share(chip, peak)
    yield "memory", chip.memory_efficiency
    yield "flash 2", chip.flash2_efficiency or 0.5
    yield "flash 3", chip.flash3_efficiency or 0.5


@pytest.mark.parametrize("name", accelerators())
def test_no_chip_achieves_more_than_its_peak(name: str):
    assert {what: share for what, share in shares(name) if not 0 < share <= 1} == {}


@pytest.mark.parametrize("name", engines())
def test_no_engine_exposes_or_hides_more_than_all(name: str):
    time = engine(name).time
    found = {
        field.name: getattr(time, field.name)
        for field in fields(EngineTime)
        if field.name.endswith(("_exposed", "_hidden"))
    }

    assert {field: share for field, share in found.items() if not 0 <= share <= 1} == {}


GOOD: dict[str, Any] = {
    "name": "engine.a.gemm_level",
    "of": "engine",
    "names": ["a"],
    "field": "gemm_level",
    "factor": 1.5,
    "sd": 0.1,
    "share": 0.5,
}


def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *tables: dict[str, Any]) -> module.Fitted:
    """A file with these parameters, as the catalog reads it."""
    lines = [
        line
        for each in tables
        for line in ("[[parameter]]", *(f"{key} = {_toml(value)}" for key, value in each.items()))
    ]
    file = tmp_path / "fitted.toml"
    run = {
        "title": "a fit",
        "date": "2026-11-30",
        "digest": "0123",
        "engines": [],
        "accelerators": [],
        "pairs": ["a on hopper"],
    }
    head = ["[run]", *(f"{key} = {_toml(value)}" for key, value in run.items())]
    file.write_text("\n".join([*head, *lines]))
    monkeypatch.setattr(module, "data_file", lambda name: tmp_path / name)
    return fitted.__wrapped__()


def _toml(value: object) -> str:
    return repr(value).replace("'", '"')


def test_a_factor_is_read_as_it_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (factor,) = read(monkeypatch, tmp_path, GOOD).factors

    assert factor == Factor(**{**GOOD, "names": ("a",)})


def test_an_engine_is_calibrated_on_the_architectures_of_its_pairs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    found = read(monkeypatch, tmp_path, GOOD)

    assert (found.architectures("a"), found.architectures("b")) == (("hopper",), ())


def test_a_factor_without_names_touches_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    own, everywhere = read(monkeypatch, tmp_path, GOOD, GOOD | {"names": []}).factors

    assert [own.touches("engine", (name,), "gemm_level") for name in ("a", "b")] == [True, False]
    assert [everywhere.touches("engine", (name,), "gemm_level") for name in ("a", "b")] == [True, True]
    assert not own.touches("engine", ("a",), "dispatch_s")
    assert not own.touches("accelerator", ("a",), "gemm_level")


def test_nothing_is_predicted_without_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(module, "data_file", lambda name: tmp_path / name)

    with pytest.raises(CatalogError, match=r"fitted\.toml is missing"):
        fitted.__wrapped__()


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"factor": None},
        {"of": "chip"},
        {"factor": 0.0},
        {"factor": -1.0},
        {"factor": math.nan},
        {"factor": math.inf},
        {"factor": "1.5"},
        {"sd": -0.1},
        {"share": 1.5},
        {"names": "a"},
    ],
)
def test_a_broken_factor_is_refused(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    broken = {key: value for key, value in (GOOD | change).items() if value is not None}

    with pytest.raises(CatalogError, match=r"fitted\.toml: a parameter needs"):
        read(monkeypatch, tmp_path, broken)
