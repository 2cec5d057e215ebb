"""What one plan saved is resumed under another, by `parallelize` itself."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("torch")
pytest.importorskip("transformers")

HERE = Path(__file__).parent
NEAR = 5e-6


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    sys.path.insert(0, str(HERE.parent))
    from forked import run_job

    return run_job(HERE / "planned.py", str(tmp_path_factory.mktemp("runs")))


COMPOSED = ["replicated", "ZeRO-1", "tensor x sharded", "stages x sharded", "two stages a rank"]


@pytest.mark.parametrize("name", [*COMPOSED, "ZeRO-2", "HSDP"])
def test_sharded_weights_are_resumed_by_another_plan(seen: dict[str, Any], name: str):
    for rank in seen["four"]:
        assert rank[name] == pytest.approx(rank["whole"][3:], abs=NEAR)


@pytest.mark.parametrize("name", COMPOSED)
def test_another_plan_is_resumed_by_sharded_weights(seen: dict[str, Any], name: str):
    for rank in seen["four"]:
        assert rank[f"sharded after {name}"] == pytest.approx(rank["whole"][3:], abs=NEAR)


@pytest.mark.parametrize("name", ["replicated", "sharded"])
def test_two_ranks_resume_what_four_saved(seen: dict[str, Any], name: str):
    for rank in seen["two"]:
        assert rank[name] == pytest.approx(seen["four"][0]["whole"][3:], abs=NEAR)


OTHERS = {
    "tensor": "llama",
    "tied": "hf-gpt2",
    "tied over stages": "hf-gpt2",
    "fused": "hf-gpt2",
    "experts": "moe",
    "width of experts": "moe",
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("way", ["{}", "sharded after {}"])
def test_split_and_tied_weights_are_resumed_and_saved(seen: dict[str, Any], name: str, way: str):
    whole = seen["four"][0][OTHERS[name]]

    for rank in seen["two"]:
        assert rank[way.format(name)] == pytest.approx(whole[3:], abs=NEAR)
