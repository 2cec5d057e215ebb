"""A rank that is killed at any moment costs the steps since the last checkpoint, and nothing else."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("torch")

HERE = Path(__file__).parent
EVERY, NEAR = 3, 5e-6


# every second kill comes while a checkpoint is written
@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.more)])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    sys.path.insert(0, str(HERE.parent))
    from forked import run_job

    paths = (str(HERE), str(HERE.parent / "checkpoint"))
    folder = str(tmp_path_factory.mktemp("killed"))
    found = run_job(HERE / "kills.py", folder, str(request.param), paths=paths)
    assert len(found["kills"]) == request.param
    return found


def test_every_start_goes_on_from_the_last_whole_checkpoint(seen: dict[str, Any]):
    assert seen["fault"] == ""
    for kill, steps in zip(seen["kills"], seen["starts"][1:], strict=True):
        assert kill["whole"] <= steps[0]["from"] <= kill["last"] + 1


def test_no_more_is_lost_than_the_steps_since_the_save_that_was_begun(seen: dict[str, Any]):
    # a save is begun every 3 steps and whole before the next: at most 2 * 3 - 1 steps and the one that ran
    for kill, steps in zip(seen["kills"], seen["starts"][1:], strict=True):
        assert kill["last"] - steps[0]["from"] <= 2 * EVERY


def test_the_losses_are_those_of_a_run_that_nobody_killed(seen: dict[str, Any]):
    for start in seen["starts"]:
        for line in start[1:]:
            assert line["loss"] == pytest.approx(seen["whole"][line["step"] - 1], abs=NEAR)


def test_every_further_start_names_the_rank_that_was_killed(seen: dict[str, Any]):
    for kill, told in zip(seen["kills"], seen["told"], strict=True):
        assert told.startswith(f"rank {kill['rank']} was killed by SIGKILL")
