"""Whole benches on this machine's processor; run by `make test-hf`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from escala.formats.bench_cluster import bench_cluster, bench_of
from escala.formats.files import read_keys

pytestmark = pytest.mark.optional

SKIP = "`escala bench` needs PyTorch"
PARTS = {"gemm", "attention", "memory", "step", "launch", "storage"}
PARTS |= {"convolution", "pooling", "passes", "optimizer", "loader"}
OPTIONS = ("bench", "--device", "cpu")


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "escala", *OPTIONS, *options, "--folder", str(folder), "-o", "b.json"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_one_rank_times_products_memory_a_step_and_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch", reason=SKIP)
    from escala.measurement.bench import shapes
    from escala.measurement.bench.request import Request
    from escala.measurement.bench.run import bench

    monkeypatch.setitem(shapes.PRODUCTS, "cpu", ((64, 64, 64), (256, 256, 256)))
    monkeypatch.setitem(shapes.STREAM_BYTES, "cpu", 2**22)
    began = time.perf_counter()
    said: list[str] = []
    request = Request(kind="cpu", budget_s=6.0, folder=tmp_path, started_s=began)
    document = bench(request, lambda what, left_s: said.append(what))

    assert document is not None
    assert document.elapsed_s == pytest.approx(time.perf_counter() - began, abs=1.0)
    parts = {each.part for each in document.timed}
    assert parts >= {"gemm", "attention", "memory"}
    assert parts | set(document.skips) >= PARTS  # a busy machine may not get to all in so short a time
    assert document.skips["network"].startswith("one rank has nobody to talk to")
    assert document.power.counter in ("no counter", "RAPL")
    assert said[0] == "round 1: fp32 64 x 64 x 64, forward"
    assert list(tmp_path.iterdir()) == []
    assert bench_cluster(document).devices == 1


def test_two_ranks_are_interrupted_and_what_is_there_is_a_cluster(tmp_path: Path):
    pytest.importorskip("torch", reason=SKIP)
    running = start(tmp_path, "--ranks", "2", "--budget", "120")
    assert running.stderr is not None
    assert "round 1" in running.stderr.readline()
    time.sleep(2)
    os.kill(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)

    assert running.returncode == 130
    assert "wrote b.json: interrupted, with what was there" in said
    document = bench_of(read_keys(tmp_path / "b.json"))
    assert (document.ranks, document.backend, document.is_interrupted) == (2, "gloo", True)
    assert "not reached: the bench was interrupted" in document.skips["network"]
    assert json.loads((tmp_path / "b.json").read_text())["schema"] == "escala/bench@1"
