"""The sums of a process and its descendants hold what ended in between, and never go back."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from escala.measurement.sampling.sample import CommandUse
from escala.measurement.sampling.tree import Tree

BURN = "import os, time\nwhile sum(os.times()[:2]) < {cpu_s}: pass\n"
HOLD = "import sys; block = bytearray({bytes}); print('ready', flush=True); sys.stdin.read()"
WAIT_S = 30.0

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python with a program; what is left is ended."""
    began: list[subprocess.Popen[str]] = []

    def once(program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program]
        began.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        )
        return began[-1]

    yield once
    for each in began:
        each.kill()
        each.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def until(tree: Tree, is_so: Callable[[CommandUse], bool]) -> CommandUse:
    end_s = time.monotonic() + WAIT_S
    while not is_so(use := tree.use(1.0)):
        assert time.monotonic() < end_s, use
        time.sleep(0.02)
    return use


def test_memory_of_a_child_counts(start: Start):
    child = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD.format(bytes=200_000_000)!r}])"
    )
    process = start(child)
    tree = Tree(process.pid)
    assert line(process) == "ready\n"

    use = tree.use(1.0)
    assert use.processes == 2
    # 200 MB of the child and some 10 MB of each interpreter
    assert 200e6 < use.resident_bytes < 300e6


def test_the_time_of_a_child_that_ended_between_two_samples_counts(start: Start):
    child = BURN.format(cpu_s=0.3)
    process = start(
        "import subprocess, sys; sys.stdin.readline()\n"
        f"subprocess.run([sys.executable, '-c', {child!r}]); print('done', flush=True); sys.stdin.read()"
    )
    tree = Tree(process.pid)
    before = tree.use(1.0)
    tell(process)
    assert line(process) == "done\n"

    use = tree.use(1.0)
    assert (before.processes, use.processes) == (1, 1)
    assert 0.25 < use.cpu_s < 5.0
    assert use.busy_cores == pytest.approx(use.cpu_s - before.cpu_s)


def test_bytes_that_a_child_wrote_before_it_ended_count(start: Start, tmp_path):
    write = (
        f"import os; f = open({str(tmp_path / 'x')!r}, 'wb'); f.write(bytes(8_000_000)); os.fsync(f.fileno())"
    )
    process = start(
        "import subprocess, sys; sys.stdin.readline()\n"
        f"subprocess.run([sys.executable, '-c', {write!r}]); print('done', flush=True); sys.stdin.read()"
    )
    tree = Tree(process.pid)
    tree.use(1.0)
    tell(process)
    assert line(process) == "done\n"

    written = tree.use(1.0).written_bytes
    # whole pages: 8,000,000 bytes are 1,954 of 4,096; no count where the folder is in memory
    assert written is not None
    assert written == 0 or 8_000_000 <= written < 9_000_000


def test_a_process_that_outlives_its_parent_is_followed_and_its_time_kept(start: Start):
    grandchild = BURN.format(cpu_s=0.3) + "time.sleep(1)"
    process = start(
        "import subprocess, sys\n"
        f"print(subprocess.Popen([sys.executable, '-c', {grandchild!r}]).pid, flush=True)\n"
        "sys.stdin.readline()"
    )
    orphan = int(line(process))
    tree = Tree(process.pid)
    assert tree.use(1.0).processes == 2
    process.communicate("\n")

    alive = tree.use(1.0)
    assert alive.processes == 1
    os.kill(orphan, 0)
    ended = until(tree, lambda use: use.processes == 0)
    assert ended.cpu_s >= 0.25


def test_sums_stay_when_everything_has_ended(start: Start):
    process = start(BURN.format(cpu_s=0.2) + "print('done', flush=True); input()")
    tree = Tree(process.pid)
    assert line(process) == "done\n"
    before = tree.use(1.0)
    process.communicate("\n")

    after = tree.use(1.0)
    assert (after.processes, after.resident_bytes) == (0, 0)
    assert after.cpu_s >= before.cpu_s > 0


def test_proportional_memory_is_read_at_most_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch):
    clock = iter([0.0, 0.5, 50.0, 50.4, 50.6, 50.7])
    tree = Tree(os.getpid())
    monkeypatch.setattr("time.monotonic", lambda: next(clock))

    # half a second of reading at 0 s: the next is due 100 times as long after it, at 50.5 s
    found = [tree.use(1.0).proportional_bytes for _ in range(4)]
    assert [each is None for each in found] == [False, True, True, False]
