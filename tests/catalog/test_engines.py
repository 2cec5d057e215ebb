from dataclasses import fields, replace
from typing import Any

import pytest

from escala.catalog.engines import (
    assumption_settings,
    assumptions,
    engine,
    engine_settings,
    engines,
    setting_of,
    settings_of,
)
from escala.catalog.loader import CatalogError
from escala.errors import InvalidInput
from escala.model.assumptions import Assumptions
from escala.model.engine import AttentionKernel, EngineTime


def given(value: object, **more: object) -> dict[str, Any]:
    return {"value": value, "source": "a paper", "kind": "fit", **more}


def test_a_number_keeps_range_and_source():
    found = setting_of("file", given(1, low=0.5, high=2.0), float, {})

    assert (found.value, found.low, found.high, found.source.title) == (1.0, 0.5, 2.0, "a paper")


def test_words_and_switches_become_their_types():
    assert setting_of("file", given("flash2"), AttentionKernel, {}).value is AttentionKernel.FLASH2
    assert setting_of("file", given(True), bool, {}).value is True


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"value": 1.0, "source": "a paper"}, float),
        (given(1.0, colour="red"), float),
        (given(1.0) | {"kind": "guess"}, float),
        (given("1"), float),
        (given(True), float),
        (given(1), bool),
        (given("flash9"), AttentionKernel),
        (given(3.0, low=0.5, high=2.0), float),
        (1.0, float),
    ],
)
def test_a_faulty_number_names_its_file(table: object, wanted: type):
    with pytest.raises(CatalogError, match=r"engine\.toml"):
        setting_of("engine.toml: time.x", table, wanted, {})


def test_missing_and_unknown_keys_name_the_file():
    lacking = sorted(field.name for field in fields(EngineTime))

    with pytest.raises(CatalogError) as caught:
        settings_of(EngineTime, "a.toml", "time", {"x": given(1.0)}, {})

    assert str(caught.value) == f"a.toml: [time] has unknown keys ['x'] and lacks {lacking}"


def test_an_unknown_engine_lists_what_there_is():
    with pytest.raises(InvalidInput, match="unknown engine 'megatrn'"):
        engine("megatrn")


@pytest.mark.parametrize("name", engines())
def test_every_engine_loads_with_sources(name: str):
    settings = [setting for table in engine_settings(name).values() for setting in table.values()]

    assert engine(name).name == name
    assert all(setting.source.title for setting in settings)


def test_assumptions_load_with_sources():
    assert isinstance(assumptions(), Assumptions)
    assert set(assumption_settings()) == {field.name for field in fields(Assumptions)}


def test_horovod_takes_the_published_seconds_longer_than_what_it_wraps():
    # ResNet-50 on 8 GPUs of one node, batch 32 each: 43.3 and 48.8 ms on A100, 105.5 and 110.8 ms on V100
    wrapped, around = engine("pytorch").time, engine("horovod").time

    assert around.step_overhead_s - wrapped.step_overhead_s == pytest.approx(5.4e-3, rel=0.01)
    assert replace(around, step_overhead_s=wrapped.step_overhead_s) == wrapped
