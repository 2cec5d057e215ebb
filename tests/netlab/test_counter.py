"""What the model says that TP and SP of PyTorch send and launch, beside counts of real steps on two ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from escala.model.distributed import (
    EMBEDDING_LAUNCHES,
    LOSS_LAUNCHES,
    MAP_LAUNCHES,
    RMS_NORM_LAUNCHES,
    UPDATE_LAUNCHES,
)

pytestmark = pytest.mark.optional
TESTS = Path(__file__).parents[1]
PATIENCE_S = 120.0
# 8 sequences of 128 tokens, 128 hidden, fp32
STREAM, NUMBERS, VECTOR = 8 * 128 * 128 * 4, 8 * 128 * 4, 128 * 4


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("torch", reason="real steps need PyTorch")
    folder = tmp_path_factory.mktemp("counts")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launch, "-m", "netlab.counter", str(folder / "counts.json")]
    paths = [*sys.path, str(TESTS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / "counts.json").read_text())
    return found


def test_tp_all_reduces_twice_a_layer_each_way_at_both_ends_and_for_the_loss(counts: dict[str, Any]):
    streams = 4 * 2 * 2 + 2

    assert counts["tp 4"]["sent"] == {f"all_reduce of {STREAM}": streams, f"all_reduce of {NUMBERS}": 3}


def test_sp_gathers_and_scatters_instead_and_sums_every_norm_three_times(counts: dict[str, Any]):
    assert counts["sp 4"]["sent"] == {
        f"all_gather_into_tensor of {STREAM}": 18,
        f"reduce_scatter_tensor of {STREAM}": 18,
        f"all_reduce of {NUMBERS}": 3,
        f"all_reduce of {VECTOR}": 3 * (2 * 4 + 1),
    }


def test_a_layer_launches_about_as_many_operations_as_the_model_says(counts: dict[str, Any]):
    tp, sp = (counts[f"{way} 4"]["launches"] - counts[f"{way} 3"]["launches"] for way in ("tp", "sp"))
    updates = UPDATE_LAUNCHES[2]

    # round numbers: 20 a map stand for 137 / 7
    assert 7 * (MAP_LAUNCHES + updates) == pytest.approx(tp, rel=0.05)
    assert 2 * (RMS_NORM_LAUNCHES + updates) == pytest.approx(sp - tp, rel=0.05)


def test_the_ends_launch_about_as_many_operations_as_the_model_says(counts: dict[str, Any]):
    layer = counts["tp 4"]["launches"] - counts["tp 3"]["launches"]
    ends = counts["tp 3"]["launches"] - 3 * layer

    expected = EMBEDDING_LAUNCHES + MAP_LAUNCHES + LOSS_LAUNCHES + 2 * UPDATE_LAUNCHES[2]
    assert expected == pytest.approx(ends, rel=0.05)


def test_the_bench_divides_by_the_operations_that_it_launches(counts: dict[str, Any]):
    from escala.measurement.bench.distributed import LAUNCHES

    assert counts["maps"]["launches"] == LAUNCHES
    assert counts["maps"]["sent"] == {}
