"""What an evaluation leaves behind."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from training.forked import run_job

pytestmark = [pytest.mark.optional, pytest.mark.slow]


def test_after_an_evaluation_ranks_hold_what_their_optimizers_update():
    found = run_job(Path(__file__).with_name("evaluate_job.py"))

    assert found == [dict.fromkeys(("kept", "resharded", "tensors", "stages"), 0)] * 2
