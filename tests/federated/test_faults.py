"""Faults at random moments of a run on Flower: it ends or resumes, with the weights of an undisturbed one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netlab.hosts import missing

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("flwr")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "federated_faults.py"
FAULTS, SEED, MOST_S = 2, 1, 600.0  # `benchmarks/federated_faults.py` makes twenty


def test_a_run_survives_faults_or_resumes_and_counts_no_round_twice():
    why = missing()
    if why:
        pytest.skip(why)
    command = [sys.executable, str(SCRIPT), "--faults", str(FAULTS), "--seed", str(SEED)]

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MOST_S, check=False, env={**os.environ}
    )

    assert done.returncode == 0, done.stdout + done.stderr
