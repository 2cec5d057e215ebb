"""Ranks are started, started again after a fault, and stopped; what went wrong is one line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("torch")

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from forked import finished  # noqa: E402

ROOT = HERE.parents[2]
PATIENCE_S = 180


def begun(work: str, folder: Path, ranks: int = 2, restarts: int = 1) -> subprocess.Popen[str]:
    paths = os.pathsep.join((str(ROOT / "src"), str(HERE)))
    # not what the launcher sets where nobody has: torch.compile, in a test before, sets the folder for good
    own = ("OMP_NUM_THREADS", "TORCHINDUCTOR_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    return subprocess.Popen(
        [sys.executable, str(HERE / "start_job.py"), work, str(folder), str(ranks), str(restarts)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "PYTHONPATH": paths},
    )


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = finished(process)
    assert process.returncode == 0, f"{out}\n{err}"
    return {**json.loads(out.splitlines()[-1]), "out": out, "err": err}


def wait_for_ranks(folder: Path, ranks: int) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while len(list(folder.glob("rank-*.json"))) < ranks and time.monotonic() < until_s:
        time.sleep(0.1)


def rank(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"rank-{name}.json").read_text())


def test_ranks_start_again_after_a_fault_that_passes(tmp_path: Path):
    seen = ended(begun("fails_once", tmp_path))

    assert (seen["end"], seen["code"]) == ("done", 0)
    assert seen["told"] == ["rank 1 failed: ValueError: a fault that passes; start 2 of 2"]
    assert rank(tmp_path, "0-1")["ranks"] == 2
    assert "rank 0 speaks" in seen["out"]
    assert "rank 1 speaks" not in seen["out"]
    logs = (tmp_path / "run" / "logs").glob("*/attempt_1/1/stdout.log")
    assert [path.read_text() for path in logs] == ["rank 1 speaks\n"]
    cores = len(os.sched_getaffinity(0))
    assert int(rank(tmp_path, "0-0")["OMP_NUM_THREADS"]) <= max(cores // 2, 1)
    assert rank(tmp_path, "0-0")["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "run" / "compiled")


def test_an_error_that_comes_again_ends_the_run_and_says_why(tmp_path: Path):
    seen = ended(begun("fails_in_step_7", tmp_path, ranks=1, restarts=3))

    assert seen["told"] == ["rank 0 failed in step 7: ValueError: a fault that stays; start 2 of 4"]
    assert seen["end"].startswith(
        "rank 0 failed in step 7: ValueError: a fault that stays; it came again after a new start"
    )
    assert not (tmp_path / "rank-0-2.json").exists()


def test_wrong_input_is_one_line_and_no_further_start(tmp_path: Path):
    seen = ended(begun("is_told_wrong", tmp_path, ranks=1))

    assert seen["end"] == "tp=6 does not divide 32 heads; choose 1, 2, 4, 8, 16 or 32"
    assert (seen["code"], seen["told"]) == (2, [])
    assert not (tmp_path / "rank-0-1.json").exists()
    assert seen["err"] == ""


def test_an_interrupt_reaches_all_ranks_which_save(tmp_path: Path):
    process = begun("saves_when_asked", tmp_path)
    wait_for_ranks(tmp_path, 2)

    process.send_signal(signal.SIGINT)

    assert ended(process)["end"] == "interrupted"
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-0", "saved-1"]


def test_a_rank_ends_with_the_process_that_started_it(tmp_path: Path):
    process = begun("saves_when_asked", tmp_path, ranks=1)
    wait_for_ranks(tmp_path, 1)

    process.kill()

    until_s = time.monotonic() + PATIENCE_S
    while not (tmp_path / "saved-0").exists() and time.monotonic() < until_s:
        time.sleep(0.1)
    process.communicate()
    assert (tmp_path / "saved-0").exists()
