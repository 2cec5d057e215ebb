"""Real jobs that wait for one thing only are told so, from the traces that PyTorch writes of them."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from escala.measurement.profile.analyse import profile
from escala.measurement.profile.read import read_traces
from escala.measurement.profile.record import Profile

JOBS = Path(__file__).with_name("jobs.py")
pytestmark = [pytest.mark.optional, pytest.mark.slow]


@pytest.fixture(scope="module")
def profile_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Profile]:
    """The profile of a job, which runs once."""

    @cache
    def give(job: str) -> Profile:
        folder = tmp_path_factory.mktemp(job)
        command = [sys.executable, str(JOBS), job, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return profile(read_traces([str(folder)]))

    return give


@pytest.mark.parametrize("job", ["input", "compute", "launch", "communication"])
def test_a_job_that_waits_for_one_thing_is_told_so(profile_of, job: str):
    found = profile_of(job)

    assert found.verdict.kind == job, found
    assert found.steps.count == 2


def test_flop_of_a_real_step_by_hand(profile_of):
    found = profile_of("compute").critical

    # four layers of 1024 × 1024 on 1024 rows: 2 * 1024 ** 3 forward; weight gradients of 4, inputs of 3
    assert found.flop == 2 * 1024**3 * (4 + 4 + 3)


def test_traffic_of_real_ranks_by_hand(profile_of):
    found = profile_of("communication")

    (sums,) = found.critical.traffic
    # two all-reduces of 2 ** 24 numbers of 4 bytes, in the only group of the run
    assert (sums.operation, sums.group, sums.ranks, sums.messages) == ("all_reduce", "default_pg", 2, 2)
    assert sums.payload_bytes == 2 * 4 * 2**24
    assert len(found.arrivals) == 2
