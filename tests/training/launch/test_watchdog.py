"""A rank that does not come is named by the others within seconds, whatever it does instead."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("torch")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    sys.path.insert(0, str(HERE.parent))
    from forked import run_job

    return run_job(HERE / "hang_job.py", str(tmp_path_factory.mktemp("hangs")))


def test_a_sleeping_rank_is_named_with_its_line_on_every_rank(seen: dict[str, Any]):
    for rank in seen["sleeps"]:
        assert rank["code"] == 1
        assert rank["words"].startswith("Hang: rank 2 has not entered all_reduce #4 of all ranks")
        assert "in step 7, training, at launch/hang_job.py" in rank["words"]


def test_a_skipped_collective_is_named_with_its_group(seen: dict[str, Any]):
    for rank in seen["skips"]:
        assert rank["words"].startswith("Hang: rank 2 has not entered all_reduce #2 of ranks 1, 2 (dp)")


def test_a_message_that_was_not_sent_names_its_sender(seen: dict[str, Any]):
    for rank in seen["forgets to send"]:
        assert "in forgets_to_send, and rank 0 waits for a message" in rank["words"]
        assert rank["words"].startswith("Hang: rank 1 is in step 7")


def test_a_stopped_process_does_not_answer(seen: dict[str, Any]):
    assert (
        seen["stops"][0]["words"] == "Hang: rank 1 does not answer; others wait in all_reduce #1 of all ranks"
    )


def test_ranks_that_compute_for_long_go_on(seen: dict[str, Any]):
    assert [rank["code"] for rank in seen["computes"]] == [0, 0]
    assert [rank["words"] for rank in seen["computes"]] == ["", ""]
