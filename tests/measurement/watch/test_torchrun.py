"""A launcher with its ranks is watched as one command."""

import sys
from pathlib import Path

import pytest

from escala.measurement.logs.record import record

PROGRAM = """
import time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
gradient = torch.zeros(1_000_000)
for step in range(1, 11):
    begin = time.monotonic()
    time.sleep(0.1)
    dist.all_reduce(gradient)
    spent_ms = 1e3 * (time.monotonic() - begin)
    if dist.get_rank() == 0:
        print(f" [2026-01-01 00:00:00] iteration {step:8d}/ 10 | consumed samples: 1 | "
              f"elapsed time per iteration (ms): {spent_ms:.1f} | global batch size: 2 |", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.optional
def test_ranks_of_torchrun_are_sampled_and_their_steps_found(watch, tmp_path: Path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    found = watch("-o", "node", "--", *launcher, "train.py")
    assert found.returncode == 0, found.stderr
    run = record([str(tmp_path / "node")])
    assert run.step is not None
    assert (run.last_step, run.step.how) == (10, "logged")
    assert run.step.median_s >= 0.1
    (usage,) = run.usage
    assert usage.resident_bytes is not None
    # torchrun and two ranks, each with torch loaded
    assert usage.resident_bytes.peak > 300e6
    # a gradient of 4 MB goes over the loopback in each of ten steps: at least 40 MB
    loopback = next(each for each in usage.interfaces if each.name == "lo")
    assert loopback.sent_bytes_per_s is not None
    assert loopback.sent_bytes_per_s.mean * usage.duration_s > 40e6
