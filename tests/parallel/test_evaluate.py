"""What an evaluation leaves behind, and what a step gathers."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from training.forked import run_job

pytestmark = [pytest.mark.optional, pytest.mark.slow]


@pytest.fixture(scope="module")
def found():
    return run_job(Path(__file__).with_name("evaluate_job.py"))


def test_after_an_evaluation_ranks_hold_what_their_optimizers_update(found):
    expected = dict.fromkeys(("kept", "resharded", "tensors", "stages"), 0)
    assert [each["lost"] for each in found] == [expected] * 2


def test_a_micro_batch_gathers_blocks_twice_and_what_is_left_once(found):
    # resharded: 2 micro-batches * (2 * 4 blocks + 1); kept: 4 blocks + 1, once a step
    assert [each["gathers"] for each in found] == [{"kept": 5, "resharded": 18}] * 2
