"""The files of a watch: what is in them, where they lie, and that a killed watch leaves them whole."""

import contextlib
import os
import signal
import socket
import sys
import time
import urllib.request
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from escala.errors import InvalidInput
from escala.measurement.logs.record import record
from escala.measurement.logs.source import Source
from escala.measurement.logs.watched import samples
from escala.measurement.runrecord import RunRecord
from escala.measurement.watch.folder import new_folder
from escala.measurement.watch.watched import Watched

PYTHON = sys.executable
MEGATRON = """
import datetime, sys, time
print("using world size: 4, data-parallel size: 4", flush=True)
block = bytearray({bytes})
for i in range(1, {steps} + 1):
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    print(f" [{{datetime.datetime.now():%Y-%m-%d %H:%M:%S}}] iteration {{i:8d}}/ 100 | consumed samples: 1 | "
          f"elapsed time per iteration (ms): {{200.0 + i:.1f}} | global batch size: {{8:5d}} |")
open("written", "wb").write(bytes(20_000_000))
sys.exit(4)
"""


def values(text: str) -> dict[str, float]:
    return {
        each.name: each.value for family in text_string_to_metric_families(text) for each in family.samples
    }


def test_a_run_leaves_its_samples_its_output_its_record_and_its_metrics(watch, tmp_path: Path):
    found = watch("--json", "--", PYTHON, "-c", MEGATRON.format(bytes=200_000_000, steps=8))
    folder = tmp_path / "watch"

    document = msgspec.json.decode(found.stderr, type=Watched)
    assert (found.returncode, document.exit_code) == (4, 4)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("metrics.prom", "output.log", "run.json", "samples.jsonl", "watch.json")
    ]
    assert (folder / "watch.json").read_bytes() == found.stderr
    run = document.run
    assert run is not None
    assert msgspec.json.decode((folder / "run.json").read_bytes(), type=RunRecord) == run
    # the first of eight is warm-up; the median of 202 ... 208 ms
    assert run.step is not None
    assert (round(run.step.median_s, 9), run.step.samples, run.step.how) == (0.205, 7, "logged")
    assert (run.devices, run.global_batch, run.last_step) == (4, 8, 8)
    assert run.began is not None
    assert run.began.endswith("Z")
    (usage,) = run.usage
    assert usage.samples == len(list(samples(Source(folder / "samples.jsonl"))))
    assert usage.cpu_s > 0.2
    assert usage.resident_bytes is not None
    assert 200e6 < usage.resident_bytes.peak < 400e6
    assert "no GPU" in document.gaps[0] or usage.gpus
    metrics = values((folder / "metrics.prom").read_text())
    assert metrics["escala_cpu_seconds_total"] == usage.cpu_s
    assert metrics["escala_node_memory_bytes"] == usage.machine_memory_bytes
    assert record([str(folder)]).step == run.step


def test_the_summary_fits_the_terminal_and_says_what_was_used(watch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = watch("--", PYTHON, "-c", MEGATRON.format(bytes=1, steps=4)).stderr.decode()

    assert max(map(len, text.splitlines())) <= 60
    for word in ("ended with 4", "Step time: median", "CPU", "Memory", "no counter", "Waits", "Cost"):
        assert word in text


def test_a_watch_that_is_killed_leaves_what_it_had(start, tmp_path: Path):
    process = start("--", PYTHON, "-c", MEGATRON.format(bytes=1, steps=1000))
    assert process.stdout is not None
    for _ in range(8):
        process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    found = record([str(tmp_path / "watch")])
    assert found.step is not None
    assert 5 <= found.step.samples + found.step.warmup_samples <= 8
    assert found.usage[0].samples >= 2


def test_output_without_steps_is_said(watch, tmp_path: Path):
    assert watch("--", "echo", "hello").returncode == 0

    assert (tmp_path / "watch" / "output.log").read_text()[24:] == " hello\n"
    found = record([str(tmp_path / "watch")])
    assert found.step is None
    (note,) = found.notes
    assert note.startswith(f"no step was found in {tmp_path / 'watch' / 'output.log'}; known are")


def test_a_full_disk_ends_the_file_and_not_the_command(watch, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "output.log").symlink_to("/dev/full")

    found = watch("-o", "full", "--", "echo", "hello")
    assert (found.returncode, found.stdout) == (0, b"hello\n")
    assert "output.log ends early: no space left on device" in " ".join(found.stderr.decode().split())


def scraped(port: int) -> dict[str, float]:
    """What the port says as soon as it says something."""
    end_s = time.monotonic() + 60
    while True:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer,
        ):
            if found := values(answer.read().decode()):
                return found
        assert time.monotonic() < end_s
        time.sleep(0.1)


def test_the_last_sample_can_be_scraped_while_the_command_runs(start):
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    process = start("--prometheus", str(port), "--", PYTHON, "-c", "print('ready', flush=True); input()")
    assert process.stdout is not None
    process.stdout.readline()
    found = scraped(port)
    process.communicate(b"\n", timeout=60)

    assert found["escala_processes"] == 1
    assert found["escala_resident_bytes"] > 1e6


def test_a_port_that_is_taken_is_one_line_before_the_command_starts(watch, tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = watch("--prometheus", str(port), "--", "touch", "begun")

    assert found.returncode == 2
    assert b"address already in use" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_second_watch_goes_into_a_folder_of_its_own_and_a_named_one_is_never_mixed(watch, tmp_path: Path):
    for _ in range(2):
        watch("--", "true")
    refused = watch("-o", "watch", "--", "touch", "begun")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["watch", "watch-2"]
    assert refused.returncode == 2
    assert b"watch holds an earlier watch; name another folder with -o" in refused.stderr


def test_a_folder_that_takes_no_files_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(InvalidInput, match="takes no files"):
        new_folder(str(tmp_path / "file"))


def test_each_process_of_a_launch_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    launch = {"SLURMD_NODENAME": "n07", "SLURM_NTASKS": "2"}

    made = [new_folder(None, launch | {"SLURM_PROCID": str(rank)}) for rank in range(2)]
    assert made == [Path("watch/n07-0"), Path("watch/n07-1")]
