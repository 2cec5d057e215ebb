"""A plan in somebody else's loop."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from training.forked import run_job

pytestmark = [pytest.mark.optional, pytest.mark.slow]


@pytest.fixture(scope="module")
def found():
    return run_job(Path(__file__).with_name("prepare_job.py"))


@pytest.mark.parametrize("plan", ["ddp", "zero1", "fsdp"])
def test_a_prepared_loop_learns_what_one_process_learns(found, plan):
    assert found["weights"][plan] < 5e-6


@pytest.mark.parametrize("plan", ["pp", "cp", "tp"])
def test_plans_that_need_a_step_of_their_own_are_refused(found, plan):
    assert "escala train" in found["refused"][plan]


def test_other_processes_than_devices_are_refused(found):
    assert "4" in found["refused"]["four"]
