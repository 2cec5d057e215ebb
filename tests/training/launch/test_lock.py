"""One run in a folder, for as long as its process lives."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.training.launch.lock import RANK, only_run

HOLDER = """
import sys, time
from pathlib import Path
from escala.training.launch.lock import only_run
with only_run(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(60)
"""


def quiet(text: str) -> None:
    raise AssertionError(text)


def test_a_second_run_is_refused_by_the_process_of_the_first_and_not_after_that_was_killed(tmp_path: Path):
    first = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    with first:
        assert first.stdout.readline() == "held\n"

        with pytest.raises(InvalidInput, match=rf"going on \(process {first.pid} on .*name another with -o"):
            only_run(tmp_path, quiet).__enter__()
        first.send_signal(signal.SIGKILL)

    with only_run(tmp_path, quiet):
        assert (tmp_path / "run.lock").read_text().startswith(f"process {os.getpid()} on ")


def test_the_first_rank_has_a_lock_beside_that_of_its_launcher(tmp_path: Path):
    with only_run(tmp_path, quiet), only_run(tmp_path, quiet, RANK):
        pass


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import fcntl

    def unsupported(file: object, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    told: list[str] = []

    with only_run(tmp_path, told.append):
        pass

    assert len(told) == 1
    assert "operation not supported" in told[0]
