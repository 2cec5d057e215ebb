"""`escala profile` of a step that runs here: what it refuses, and whole runs (by `make test-hf`)."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from escala.report.planfile import read_plan

JOB = """
    import time
    import torch
    from torch.utils.data import DataLoader

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            if index == 0:
                print("a line of a worker", flush=True)
            time.sleep(0.02)
            return torch.randn(8)

    def make():
        print("a line of the job")
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        return model, optimizer, DataLoader(Slow(), batch_size=4), lambda model, batch: model(batch).mean()

    def broken():
        raise ValueError("no data here")
"""
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
BENCH = Path(__file__).parents[1] / "formats" / "data" / "bench.json"
WITH_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="a step runs on PyTorch")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with functions and a config.json in the current folder, imported anew by each test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_job", raising=False)
    (tmp_path / "own_job.py").write_text(textwrap.dedent(JOB))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    measured = json.loads(BENCH.read_text())
    elsewhere = {
        **measured,
        "ranks": 1,
        "ranks_per_node": 1,
        "host": {**measured["host"], "processor": "Other"},
        "lines": [],
    }
    (tmp_path / "bench.json").write_text(json.dumps(elsewhere))
    return tmp_path


def start(folder: Path, *options: str, **given) -> subprocess.Popen[str]:
    """A run of its own, since a step sets signals and imports modules."""
    command = [sys.executable, "-m", "escala", "profile", *options]
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **given,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("own_job:make", "--plan", "plan.json"), "--plan goes with traces"),
        (
            ("own_job:make", "--save-plan", "missing/p.json"),
            "missing takes no files (no such file or directory)",
        ),
        (("trace.json", "--what-if", "amp"), "--what-if goes with a function or a network"),
        (("trace.json", "--keep-traces", "kept"), "--keep-traces goes with a function or a network"),
        (("own_job:make", "--steps", "0"), "'0' is no whole number from 1"),
        (("own_job:make", "traces"), "own_job:make is run here and goes alone; give one function"),
        (("own_job.py:make", "own_job.py:make"), "own_job.py:make is run here and goes alone"),
        (("own_job.py",), "name the function in it: own_job.py:FUNCTION"),
        (("own_job:",), "'own_job:' names half a function; write module:function"),
        ((":make",), "':make' names half a function; write module:function"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run, job: Path, options: tuple[str, ...], said: str):
    result = run("profile", *options)

    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_without_torch_the_command_that_installs_it_is_said(run, job, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    result = run("profile", "own_job:make")

    assert result.code == 3
    assert "pip install 'escala[torch]'" in result.err


@WITH_TORCH
@pytest.mark.optional
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("nope",), "there is no trace nope here, and no network: unknown network 'nope'"),
        (("own_job:mak",), "unknown function 'mak': did you mean make?"),
        (("own_job.make",), "for a function write own_job:make"),
        (("config.json", "--seq", "17"), "--seq 17: the context of config.json is 16"),
        (("gpt2", "--seq", "9999"), "--seq 9999: the context of gpt2 is 1,024"),
        (("own_job:make", "--keep-traces", "own_job.py/x"), "--keep-traces: own_job.py/x cannot be made"),
        (("own_job:make", "--keep-traces", "/proc/x"), "--keep-traces: /proc/x cannot be made"),
        (("own_jo:make",), "there is no module 'own_jo' here"),
        (("own_job:make", "--micro-batch", "2"), "--micro-batch goes with a network"),
        (("own_job:make", "--what-if", "ampp"), "unknown practice 'ampp': did you mean amp"),
        (("own_job:make", "--keep-traces", "."), "--keep-traces: . is not empty"),
        (("config.json", "--precision", "fp8"), "unknown precision 'fp8'"),
        (
            ("config.json", "--cluster", "bench.json"),
            "bench.json, 2026-11-30 is of another machine: measured on",
        ),
        (("own_job:broken",), "own_job:broken raised ValueError: no data here (own_job.py:22, in broken"),
    ],
)
def test_what_cannot_be_run_is_one_clear_line(run, job: Path, options: tuple[str, ...], said: str):
    result = run("profile", *options)

    assert (result.code, result.out) == (2, "")
    (line,) = [each for each in result.err.splitlines() if each.startswith("error:")]
    assert said in line


@WITH_TORCH
@pytest.mark.optional
def test_a_job_that_waits_for_its_data_is_told_so_and_what_workers_buy(job: Path):
    process = start(job, "own_job:make", "--what-if", "workers", "--steps", "3", "--rounds", "6")
    out, said = process.communicate(timeout=240)

    assert process.returncode == 0, said
    assert out.startswith("own_job:make · Linear · 9 parameters · AdamW · cpu")
    assert "Input-bound: " in out
    # prints of the job are no data, nor those of its workers
    for line in ("a line of the job", "a line of a worker"):
        assert line in said
        assert line not in out
    assert max(map(len, out.splitlines())) <= 80
    assert re.search("DataLoader workers: (faster|within)", out)


@WITH_TORCH
@pytest.mark.optional
def test_a_network_is_profiled_beside_its_prediction(job: Path):
    pytest.importorskip("transformers", reason="the model is of transformers")
    kept = ("--out", "profile.json", "--keep-traces", "kept", "--save-plan", "plan.json")
    process = start(
        job, "config.json", "--gpu", "h100-sxm", "--steps", "2", "--micro-batch", "3", "--json", *kept
    )
    out, said = process.communicate(timeout=240)

    assert process.returncode == 0, said
    document = json.loads(out)
    assert (document["schema"], document["run"]["tokens"]) == ("escala/profile@1", 3 * 16)
    assert document["predicted"]["plan_title"] == "1 device · mb 3"
    terms = {term["name"] for part in document["predicted"]["parts"] for term in part["terms"]}
    assert {"matmul_s", "attention_s", "head_s", "optimizer_s"} <= terms
    step_s = document["run"]["step_s"]["median"]
    assert document["predicted"]["error"] == pytest.approx(document["predicted"]["step_s"] / step_s - 1)
    assert sorted(path.name for path in (job / "kept").iterdir()) == ["rank0.json.gz", "samples.jsonl"]
    assert json.loads((job / "profile.json").read_text()) == document
    plan = read_plan(job / "plan.json")
    assert (plan.plans[0].micro_batch, plan.problem.workload.sequence_tokens) == (3, 16)


@WITH_TORCH
@pytest.mark.optional
def test_ctrl_c_keeps_what_is_there_though_workers_hear_it_too(job: Path):
    options = ("--what-if", "workers", "--steps", "2", "--rounds", "1000", "--out", "profile.json")
    process = start(job, "own_job:make", *options)
    assert process.stderr is not None
    while "round" not in (line := process.stderr.readline()):
        assert line
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group hears it
    out, said = process.communicate(timeout=60)

    assert process.returncode == 130, said
    assert "wrote profile.json" in said
    document = json.loads((job / "profile.json").read_text())
    assert document["run"]["is_interrupted"]
    assert document["run"]["what_if"]["is_interrupted"]
    assert "What each practice buys" in out
