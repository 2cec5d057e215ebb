"""A rank that does not come is named by the others within seconds, whatever it does instead."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("torch")

from escala.training.launch import watchdog  # noqa: E402

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


def test_an_error_is_told_with_the_step_in_which_it_came(tmp_path: Path):
    watched, error = watchdog.Watchdog(None, tmp_path), ValueError("no such token")
    watched.step(7)

    watched.__exit__(ValueError, error, None)

    assert error.__notes__ == ["step 7"]


def test_the_limit_is_ten_median_steps_without_what_was_saved_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()
    monkeypatch.setattr(watchdog, "time", clock)
    watched = watchdog.Watchdog(None, tmp_path)

    for step in range(1, 5):
        watched.step(step)
        clock.now_s += 20
        with watched.phase("saving"):
            clock.now_s += 100
            assert watched.limit_s() == 600
    watched.step(5)

    assert watched.limit_s() == 200  # 10 * 20 s


def test_the_first_steps_may_compile(tmp_path: Path):
    watched = watchdog.Watchdog(None, tmp_path)
    watched.step(1)

    assert watched.limit_s() == 600


class Clock:
    """As the module time, at an hour that the test sets."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s
