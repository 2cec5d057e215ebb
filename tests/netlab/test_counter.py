"""What the model says that TP and SP of PyTorch send and launch, beside counts of real steps on two ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from escala.model.distributed import COUNTED
from escala.model.engine import DistributedTensors

STYLES, OWN = COUNTED[DistributedTensors.MODULES], COUNTED[DistributedTensors.WEIGHTS]
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


def layer(counts: dict[str, Any], way: str) -> int:
    """Launches of one layer more."""
    return int(counts[f"{way} 4"]["launches"] - counts[f"{way} 3"]["launches"])


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
    tp, sp = (layer(counts, way) for way in ("tp", "sp"))
    update = STYLES.update[2]

    # round numbers: 20 a map stand for 137 / 7
    assert 7 * (STYLES.linear_map + update) == pytest.approx(tp, rel=0.05)
    assert 2 * (STYLES.rms_norm + update) == pytest.approx(sp - tp, rel=0.05)


def test_the_ends_launch_about_as_many_operations_as_the_model_says(counts: dict[str, Any]):
    ends = counts["tp 3"]["launches"] - 3 * layer(counts, "tp")

    assert STYLES.embedding + STYLES.head + 2 * STYLES.update[2] == pytest.approx(ends, rel=0.05)


def test_a_layer_of_escala_launches_what_the_model_says(counts: dict[str, Any]):
    tp, sp = (layer(counts, way) for way in ("own tp", "own sp"))

    # 7 maps and 2 norms
    assert OWN.layer + 7 * OWN.linear_map + 2 * OWN.norm_vector + 9 * OWN.update[2] == tp
    assert 2 * OWN.rms_norm == sp - tp


def test_the_ends_of_escala_launch_what_the_model_says_and_eight_a_step(counts: dict[str, Any]):
    ends = counts["own tp 3"]["launches"] - 3 * layer(counts, "own tp")

    # the update of all parameters and their norm are eight operations, whatever the layers
    assert OWN.embedding + OWN.norm_vector + OWN.head + 3 * OWN.update[2] + 8 == ends


def test_escala_sends_less_for_the_loss_and_sums_every_norm_once(counts: dict[str, Any]):
    tp, sp = (counts[f"own {way} 4"]["sent"] for way in ("tp", "sp"))

    assert tp[f"all_reduce of {STREAM}"] == 18
    assert (sp[f"all_gather_into_tensor of {STREAM}"], sp[f"reduce_scatter_tensor of {STREAM}"]) == (18, 18)
    assert tp[f"all_reduce of {NUMBERS}"] + tp[f"all_reduce of {2 * NUMBERS}"] == OWN.loss_messages
    assert sp[f"all_reduce of {VECTOR}"] == 2 * 4 + 1


def test_the_bench_divides_by_the_operations_that_it_launches(counts: dict[str, Any]):
    from escala.measurement.bench.distributed import LAUNCHES

    assert counts["maps"]["launches"] == LAUNCHES
    assert counts["maps"]["sent"] == {}
