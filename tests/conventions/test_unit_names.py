"""The unit is the last part of a number's name: docs/glossary.md, docs/decisions/0003-units-in-names.md."""

import dataclasses
import importlib
import pkgutil
import types
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Base units: a name is one of these or ends in _<one of these>.
UNITS = words("bits bytes flop j kg m s tokens usd w")

# Pure numbers: a part of a whole, a ratio of two things of a kind, an exponent, passes over data.
RATIOS = words(
    """
    deviation efficiency error exposed factor floor fraction hfu hidden high level load loads low mfu mid norm
    overlap oversubscription passes pue ratio sd share skew slack straggler
    """
)

# A number whose field stands beside it has the unit of that field.
NAMED = words("after before")

# What is counted (plurals), and extents in elements; `inside` counts ranks, `pattern` holds codes of blocks.
COUNTS = words(
    """
    batches buckets cables channels choices clients columns configurations cores count counts devices
    experts fragments groups heads hops hours inputs keys launches layers levels maps messages moments nodes
    norms outputs
    parameters patches pixels positions predictions queries ranks rounds rows samples sharers splits
    stages steps streams taps tensors tiles types
    """
)
EXTENTS = words(
    "batch dim dims hidden inner inside k kernel outer pattern period rank shape stride vocab weights width"
)

# Classes in which every number counts the same thing, said once in the class: launches, parameters, pairs.
COUNTING = words("Launches MixerParameters Parameters Passes Products Shards Slots")

# The degrees, switches, choices and verdicts of a plan, whole names; in columns a choice is a code.
PLAN = words(
    """
    dp zero reshard shard tp sp pp cp ep etp micro_batch micro_batches recompute schedule split stage_split
    cp_kind dynamic_cp dispatcher placement precision compile fused_loss local_wire optimizer_step
    offload_optimizer offload_params offload_activations reject regime verdict device_verdict host_verdict
    """
)

# What a rate may be per: a base unit, an hour (of price), one of what is counted, a doubling.
PER = (
    UNITS
    | {count.removesuffix("s") for count in COUNTS}
    | words("byte day doubling hour rack request round token")
)


def has_unit(name: str) -> bool:
    if name in PLAN or name.startswith(("has_", "is_")):
        return True
    if "_per_" in name:
        numerator, denominator = name.rsplit("_per_", 1)
        return has_unit(numerator) and denominator.split("_")[-1] in PER
    return name.split("_")[-1] in UNITS | RATIOS | COUNTS | EXTENTS | NAMED


def is_number(annotation: Any) -> bool:
    """Whether values are int or float, arrays of them, or tuples and options of those; no enum, no bool."""
    if annotation in (int, float):
        return True
    if get_origin(annotation) is np.ndarray:
        return "bool" not in str(annotation)
    return any(is_number(part) for part in get_args(annotation))


def model_modules() -> Iterator[types.ModuleType]:
    try:
        package = importlib.import_module("escala.model")
    except ModuleNotFoundError:
        return
    yield package
    for found in pkgutil.walk_packages(package.__path__, "escala.model."):
        yield importlib.import_module(found.name)


def number_fields() -> Iterator[tuple[str, str]]:
    for module in model_modules():
        for value in vars(module).values():
            is_own = isinstance(value, type) and value.__module__ == module.__name__
            if not is_own or not dataclasses.is_dataclass(value):
                continue
            if value.__name__.startswith("_") or value.__name__ in COUNTING:
                continue
            hints = get_type_hints(value)
            for field in dataclasses.fields(value):
                if is_number(hints[field.name]):
                    yield f"{module.__name__}.{value.__name__}", field.name


def test_every_number_in_the_model_carries_its_unit():
    nameless = [f"{owner}.{name}" for owner, name in number_fields() if not has_unit(name)]

    assert nameless == [], "give each name a unit suffix, or add its word to a list at the top of this file"


@pytest.mark.parametrize("name", ["step_s", "bf16_flop_per_s", "kv_heads", "dp", "price_usd_per_device_hour"])
def test_good_names_pass(name: str):
    assert has_unit(name)


@pytest.mark.parametrize(
    "name", ["size", "time", "tflops", "bandwidth", "energy_mj", "latency_us", "bytes_per_x"]
)
def test_bad_names_fail(name: str):
    assert not has_unit(name)
