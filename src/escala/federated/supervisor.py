"""Keeps programs running here: starts them, starts the dead again, ends all with what they started.

Knows commands, files for their output, and processes; nothing of Flower.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from escala.errors import EscalaError
from escala.measurement.job.orphan import end_with_launcher

RESTARTS: Final = 5
"""So often a program is started again; who runs for CALM_S has its restarts back."""
CALM_S: Final = 600.0
PAUSE_S: Final = 1.0
GRACE_S: Final = 5.0
TOLD_LINES: Final = 3


class ProgramEnded(EscalaError):
    """A program ended more often than it is started again: says its last words."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run under a name; its output is added to a log."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]


@dataclass(slots=True, kw_only=True, eq=False)
class _Running:
    program: Program
    process: psutil.Popen
    began_s: float
    restarts: int = 0


class Supervisor:
    """Programs by name; `before` is called with the name of one that is started again.

    Call `check` often, and `stop` at the end, whatever happened.
    """

    def __init__(self, before: Callable[[str], None], restarts: int = RESTARTS) -> None:
        self._before, self._restarts = before, restarts
        self._running: dict[str, _Running] = {}

    def start(self, program: Program) -> None:
        """Start one more program."""
        self._running[program.name] = _Running(
            program=program, process=_started(program), began_s=time.monotonic()
        )

    def pid(self, name: str) -> int:
        """The process of a program."""
        return int(self._running[name].process.pid)

    def kill(self, name: str) -> None:
        """End a program at once; the next check starts it again."""
        _told(self._running[name].process, "kill")

    def check(self) -> list[str]:
        """Start again what has ended; gives the names of what was. Too often is an error."""
        ended = [each for each in self._running.values() if each.process.poll() is not None]
        for each in ended:
            self._again(each)
        return [each.program.name for each in ended]

    def stop(self) -> None:
        """End all programs and everything that they started."""
        processes = [process for each in self._running.values() for process in _family(each.process)]
        self._running.clear()
        end(processes)

    def _again(self, each: _Running) -> None:
        now_s = time.monotonic()
        each.restarts = 0 if now_s - each.began_s > CALM_S else each.restarts
        if each.restarts >= self._restarts:
            raise ProgramEnded(
                f"{each.program.name} ended {each.restarts + 1} times, the last time with code "
                f"{each.process.returncode}: {last_words(each.program.log)}"
            )
        time.sleep(PAUSE_S if each.restarts else 0.0)
        self._before(each.program.name)
        each.process, each.began_s = _started(each.program), now_s
        each.restarts += 1


class Listener:
    """Hears what a log says from its end on, whoever writes it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._heard = log.stat().st_size if log.exists() else 0

    def hears(self, words: bytes) -> bool:
        """Whether these words were written since they were last heard."""
        if not self._log.exists() or self._log.stat().st_size <= self._heard:
            return False
        with self._log.open("rb") as file:
            file.seek(self._heard)
            said = file.read()
        has_words = words in said
        self._heard += len(said) if has_words else max(len(said) - len(words) + 1, 0)
        return has_words


def end(processes: Sequence[psutil.Process]) -> None:
    """Ask processes to end, and end those that do not in time."""
    for process in processes:
        _told(process, "terminate")
    _, alive = psutil.wait_procs(processes, timeout=GRACE_S)
    for process in alive:
        _told(process, "kill")
    psutil.wait_procs(alive, timeout=GRACE_S)


def last_words(log: Path, lines: int = TOLD_LINES) -> str:
    """The end of a log in one line."""
    text = log.read_text(errors="replace") if log.exists() else ""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(said[-lines:]) or "it said nothing"


def _started(program: Program) -> psutil.Popen:
    with program.log.open("ab") as log:
        return psutil.Popen(
            list(program.command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **program.environment},
            start_new_session=True,  # Ctrl-C is ours; it does not reach them by the terminal
            preexec_fn=end_with_launcher,
        )


def _family(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it started, and these."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _told(process: psutil.Process, what: str) -> None:
    try:
        getattr(process, what)()
    except psutil.NoSuchProcess:
        return
