"""Whatever stands in a trace in the place of what belongs there, there is a profile or one clear line."""

import json
import random
from copy import deepcopy
from dataclasses import astuple
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from escala.errors import InvalidInput
from escala.measurement.profile.analyse import profile
from escala.measurement.profile.read import read_traces
from escala.measurement.profile.record import RankProfile

ODD = (None, 0, -1, 10**18, 1e300, "", "odd", True, [], [[]], {}, [0, 0], [[1, 2], "a"])


def events(kineto: ModuleType) -> list[dict[str, Any]]:
    convolution = kineto.op("aten::convolution", 800, 20)
    convolution["args"] = {
        "Input Dims": [[2, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], [], [], []],
        "Concrete Inputs": ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
    }
    return [
        kineto.mark("ProfilerStep#1", 0, 1000),
        kineto.product(100, 50),
        *kineto.launched("gemm", 110, 200, 100, 3),
        *kineto.nccl(120, 300, 50, 4, elements=10),
        kineto.gloo(400, 30),
        kineto.memory(500, 100),
        convolution,
    ]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place of the document that holds a value, as its container and its key."""
    keys = range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def or_refused(path: Path) -> RankProfile | None:
    try:
        return profile(read_traces([str(path)])).critical
    except InvalidInput:
        return None


@pytest.mark.parametrize("seed", range(300))
def test_odd_values_give_a_profile_or_one_line(kineto: ModuleType, tmp_path: Path, seed: int):
    chance = random.Random(seed)
    document = json.loads(json.dumps(kineto.document(events(kineto), rank=0, device="H100")))
    for _ in range(chance.randint(1, 3)):
        container, key = chance.choice(places(document))
        container[key] = deepcopy(chance.choice(ODD))
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))

    found = or_refused(path)

    if found is not None:
        assert sum(astuple(found.waits)) == pytest.approx(found.step_s, rel=1e-6)


def test_steps_without_time_are_refused(kineto: ModuleType, tmp_path: Path):
    path = kineto.write(tmp_path / "trace.json", [kineto.op("aten::add", 5, 0)])

    with pytest.raises(InvalidInput, match="take no time"):
        profile(read_traces([str(path)]))
