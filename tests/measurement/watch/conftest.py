import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[bytes]"]
Watch = Callable[..., "subprocess.CompletedProcess[bytes]"]
WAIT_S = 60.0


def words(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "escala", "watch", "--every", "0.2", *arguments]


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End everything of a process that leads a group, also what outlives it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts `escala watch` with some arguments in the test's folder; what is left is ended."""
    began: list[subprocess.Popen[bytes]] = []
    for name in [name for name in os.environ if name.startswith(("ESCALA_", "SLURM", "OMPI", "PMI"))]:
        monkeypatch.delenv(name)

    def once(*arguments: str, **given: object) -> "subprocess.Popen[bytes]":
        streams = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")} | given
        # unbuffered: what a test has not read yet has to be there for communicate()
        process = subprocess.Popen(
            words(*arguments), cwd=tmp_path, start_new_session=True, bufsize=0, **streams
        )
        began.append(process)
        return process

    yield once
    for each in began:
        end_group(each)
        each.communicate()


@pytest.fixture
def watch(start: Start) -> Watch:
    """Runs `escala watch` to its end."""

    def once(*arguments: str, given: bytes = b"", **streams: object) -> "subprocess.CompletedProcess[bytes]":
        process = start(*arguments, **streams)
        out, err = process.communicate(given, timeout=WAIT_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    return once


OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """`escala watch` with a program of Python in a terminal of 123 columns: what it shows, and keys."""

    def __init__(self, folder: Path, program: str) -> None:
        self.place, theirs = os.openpty()
        self.resize(123)
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *words("--", sys.executable, "-c", program)],
            cwd=folder,
            start_new_session=True,
            **{name: theirs for name in ("stdin", "stdout", "stderr")},
        )
        os.close(theirs)
        self.shown = b""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.place, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def until(self, wanted: bytes) -> None:
        """Wait until something is shown."""
        end_s = time.monotonic() + WAIT_S
        while wanted not in self.shown:
            assert time.monotonic() < end_s, self.shown
            if select.select([self.place], [], [], 0.1)[0]:
                self.shown += os.read(self.place, 65536)

    def code(self) -> int:
        """The exit code, once all is shown: a terminal that is closed ends what runs in it."""
        with contextlib.suppress(OSError):
            while os.read(self.place, 65536):
                pass
        return self.process.wait(WAIT_S)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[[str], Terminal]]:
    """Watches a program of Python in a terminal of its own."""
    began: list[Terminal] = []

    def once(program: str) -> Terminal:
        began.append(Terminal(tmp_path, program))
        return began[-1]

    yield once
    for each in began:
        end_group(each.process)
        each.process.wait()
        os.close(each.place)
