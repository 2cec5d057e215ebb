import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from escala.report.planfile import read_plan

QUICK = ("demo", "--budget", "5")


def test_demo_measures_plans_explains_and_writes_its_files(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # as `make run` finds it
    result = run(*QUICK)

    assert result.code == 0
    shown, _, rest = result.out.partition("$ escala plan gpt2")
    assert "$ escala bench --budget 5" in shown
    assert "numpy, 1 rank in a node" in shown
    here, _, there = rest.partition("$ escala plan llama-3.1-8b")
    assert "measured (bench.json" in here
    assert "From peak to achieved" in there
    assert max(len(line) for line in result.out.splitlines() if not line.startswith("$")) <= 80
    assert read_plan(tmp_path / "escala-demo" / "plan.json").problem.cluster.devices == 8
    assert "wrote escala-demo/timeline.json" in result.err


def test_demo_in_json_is_one_document(run, tmp_path: Path, measured: None):
    document = json.loads(run("demo", "--out", "here", "--json").out)

    assert document["schema"] == "escala/demo@1"
    assert document["bench"]["schema"] == "escala/bench@1"
    assert document["here"]["cluster"]["source"].startswith("bench.json, ")
    assert document["plan"]["schema"] == "escala/plan@1"
    assert document["explain"]["schema"] == "escala/explain@1"
    assert all((tmp_path / name).is_file() for name in document["files"])


def test_a_demo_that_is_interrupted_writes_nothing(tmp_path: Path):
    command = [sys.executable, "-m", "escala", "demo", "--budget", "60"]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    assert "round 1" in running.stderr.readline()
    running.send_signal(signal.SIGINT)
    out, said = running.communicate(timeout=60)

    assert (running.returncode, out) == (130, "")
    assert said.splitlines()[-1] == "error: interrupted"
    assert list(tmp_path.iterdir()) == []
