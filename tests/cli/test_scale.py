"""`escala scale`: a study of two points, gone on with, by `make test-hf`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLANNED = (
    *("plan", "config.json", "--gpu", "h100-sxm", "--gpus", "2", "--precision", "fp32", "--seq", "16"),
    *(
        "--global-batch",
        "4",
        "--fix",
        "compile=off,zero=0,tp=1,pp=1,cp=1,recompute=none,fused_loss=false",
        "-o",
        "plan.json",
    ),
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 16,
}


def escala(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "escala", *arguments],
        cwd=folder,
        env=environment | {"ESCALA_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.optional
@pytest.mark.slow
def test_points_are_run_once_and_lie_beside_their_prediction(tmp_path: Path):
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert escala(tmp_path, *PLANNED).returncode == 0
    study = ("scale", "plan.json", "--devices", "1,2", "--steps", "16", "--device", "cpu", "--json")

    first = escala(tmp_path, *study)
    again = escala(tmp_path, *study)
    other = escala(tmp_path, *study, "--weak")

    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert document["schema"] == "escala/scale@1"
    one, two = document["points"]
    assert (one["devices"], one["efficiency"], one["serial_share"]) == (1, 1.0, None)
    assert two["speedup"] == pytest.approx(one["step_s"] / two["step_s"], rel=1e-12)
    assert two["waiting_share"] is not None
    assert document["ahead"][0]["devices"] == 4
    assert "point 2 of 2; about" in first.stderr
    assert not list((tmp_path / "scale").glob("devices-*/checkpoints/step-*"))
    assert json.loads(again.stdout) == document
    assert "point" not in again.stderr
    assert (other.returncode, "is of another study" in other.stderr) == (2, True)


def test_wrong_steps_and_lists_are_refused_in_one_line(run, tmp_path: Path):
    for wrong, said in ((("--steps", "3"), "from 16"), (("--devices", "a"), "plan")):
        given = {"--devices": "1,2", **dict([wrong])}
        result = run("scale", "plan.json", *(word for pair in given.items() for word in pair))
        assert result.code == 2
        assert said in result.err
