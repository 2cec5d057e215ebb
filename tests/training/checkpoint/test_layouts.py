"""What four ranks saved is resumed by other layouts with the losses of a run that was never interrupted."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("torch")

HERE = Path(__file__).parent
NEAR = 5e-6


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    sys.path.insert(0, str(HERE.parent))
    from forked import run_job

    return run_job(HERE / "job.py", str(tmp_path_factory.mktemp("runs")))


@pytest.mark.parametrize("kind", ["tensor", "pipeline", "fsdp", "while saving"])
def test_four_ranks_go_on_where_four_stopped(seen: dict[str, Any], kind: str):
    for rank in seen["four"]:
        assert rank[kind] == pytest.approx(rank["whole"][3:], abs=NEAR)


def test_two_ranks_go_on_where_four_stopped(seen: dict[str, Any]):
    whole = seen["four"][0]["whole"]

    for rank in seen["two"]:
        assert rank["fsdp"] == pytest.approx(whole[3:], abs=NEAR)


@pytest.mark.parametrize("kind", ["tensor", "pipeline"])
def test_another_layout_saves_for_sharded_ranks(seen: dict[str, Any], kind: str):
    for rank in seen["four"]:
        assert rank[f"fsdp after {kind}"] == pytest.approx(rank["whole"][5:], abs=NEAR)


def test_dropout_goes_on_with_the_same_random_numbers(seen: dict[str, Any]):
    for rank in seen["two"]:
        assert rank["dropped again"] == rank["dropped"][2:]
        assert rank["notes of dropout"] == []


def test_another_number_of_ranks_is_told_that_random_numbers_begin_anew(seen: dict[str, Any]):
    (note,) = seen["two"][0]["notes"]

    assert note.startswith("random numbers (dropout) begin anew: 4 ranks of another layout")


def test_another_optimizer_is_refused_on_every_rank(seen: dict[str, Any]):
    for rank in seen["two"]:
        assert "its optimizer was AdamW and this run has SGD" in rank["wrong optimizer"]
