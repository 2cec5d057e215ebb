"""A checkpoint goes on exactly on the ranks that saved it, and says what it cannot take over on others."""

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


def test_training_goes_on_while_a_thread_saves(seen: dict[str, Any]):
    for rank in seen["two"]:
        assert rank["while saving"] == rank["whole"]


def test_the_ranks_that_saved_go_on_exactly(seen: dict[str, Any]):
    for rank in seen["two"]:
        assert rank["resumed"] == rank["whole"][3:]


def test_dropout_goes_on_with_the_same_random_numbers(seen: dict[str, Any]):
    for rank in seen["two"]:
        assert rank["dropped again"] == rank["dropped"][2:]
        assert rank["dropped"][2:] != rank["whole"][2:4]
        assert rank["notes"] == []


def test_another_number_of_ranks_is_told_that_random_numbers_begin_anew(seen: dict[str, Any]):
    (alone,) = seen["one"]

    assert alone["resumed"] == pytest.approx(seen["two"][0]["whole"][3:], abs=NEAR)
    assert alone["notes"] == [
        "random numbers (dropout) begin anew: 2 ranks of another layout saved theirs at step 3"
    ]


def test_another_optimizer_is_refused_on_every_rank(seen: dict[str, Any]):
    for rank in seen["two"]:
        assert "its optimizer was AdamW and this run has SGD" in rank["wrong optimizer"]
