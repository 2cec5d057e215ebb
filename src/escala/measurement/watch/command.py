"""A command run as if nothing were between it and the terminal. Knows streams and signals, no log.

Its output goes on byte by byte, its input is ours. A stream that is a terminal stays one for it, and streams
that are one (`2>&1`) stay one. Linux only: the kernel says which signals the terminal sent.
"""

import fcntl
import os
import select
import shutil
import signal
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Final

from escala.errors import InvalidInput, one_line
from escala.inputs import reason

STDOUT, STDERR = 1, 2
READ_BYTES: Final = 65536
FROM_KERNEL: Final = 0x80
"""si_code of a signal that the terminal sent to its foreground group. Source: sigaction(2), SI_KERNEL."""
PASSED_ON: Final = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
AWAITED: Final = PASSED_ON | {signal.SIGCHLD, signal.SIGWINCH}
SAY_AFTER_S: Final = 5.0
SIGNALLED: Final = 128
"""A command that a signal ended has this plus its number as exit code, as in a shell."""

Held = frozenset[int]
"""Signals that are held back."""
Heard = Callable[[int, bytes, float], None]
"""Gets what the command wrote: the stream, the bytes, the time."""


@dataclass(frozen=True, slots=True)
class _Channel:
    """A way from the command to one of our streams: its two ends here, and whether it is a terminal."""

    stream: int
    ours: int
    theirs: int
    is_terminal: bool


@contextmanager
def signals_held() -> Iterator[Held]:
    """Signals wait until they are asked for; gives those that were held before.

    Entered before a library starts threads (NumPy does): one that does not hold a signal may be ended by it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    try:
        yield frozenset(before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through(held: Held) -> None:
    """Let those take effect that came before there was a command to pass them on to."""
    if signal.sigpending() & PASSED_ON:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)


class Command:
    """A command that runs as soon as it is made; `pid` is its process until `finish` has returned."""

    def __init__(self, words: Sequence[str], held: Held) -> None:
        is_one = os.path.sameopenfile(STDOUT, STDERR)
        self._channels = [_channel(STDOUT)] if is_one else [_channel(STDOUT), _channel(STDERR)]
        try:
            self.pid = self._started(list(words), held)
        except OSError as error:
            raise InvalidInput(
                f"{one_line(words[0])} cannot be run ({reason(error)}); check the command"
            ) from None

    def _started(self, words: list[str], held: Held) -> int:
        """The process of the command, with signals as they were before escala held and ignored some."""
        ends = {STDOUT: self._channels[0].theirs, STDERR: self._channels[-1].theirs}
        try:
            return os.posix_spawnp(
                words[0],
                words,
                # Python would keep lines back where its output is no terminal, and their times would be wrong
                {"PYTHONUNBUFFERED": "1", **os.environ},
                file_actions=[(os.POSIX_SPAWN_DUP2, end, stream) for stream, end in ends.items()],
                setsigmask=held,
                setsigdef=IGNORED_BY_PYTHON,
            )
        finally:
            for channel in self._channels:
                os.close(channel.theirs)

    def relay(self, heard: Heard, say: Callable[[str], None]) -> None:
        """Pass output and signals on until the command has ended and its output is closed.

        Processes that it left behind may hold its output; a signal then ends the relay.
        """
        threads = [Thread(target=_relay, args=(each, heard), daemon=True) for each in self._channels]
        for thread in threads:
            thread.start()
        while not self._has_ended():
            self._signalled(signal.sigwaitinfo(AWAITED))
        begin_s, said = time.monotonic(), False
        while any(thread.is_alive() for thread in threads):
            found = signal.sigtimedwait(AWAITED, 0.05)
            if found is not None and found.si_signo in PASSED_ON:
                return
            if not said and time.monotonic() - begin_s > SAY_AFTER_S:
                said = True
                say(
                    "the command has ended, but processes that it started hold its output; Ctrl-C leaves them"
                )

    def finish(self) -> int:
        """The exit code of the command, as a shell gives it."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return code if code >= 0 else SIGNALLED - code

    def _has_ended(self) -> bool:
        """Whether it has ended; it stays there to be sampled until `finish`."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _signalled(self, found: signal.struct_siginfo) -> None:
        if found.si_signo == signal.SIGWINCH:
            for each in self._channels:
                _same_size(each)
            os.kill(self.pid, signal.SIGWINCH)
        elif found.si_signo in PASSED_ON and found.si_code != FROM_KERNEL:
            os.kill(self.pid, found.si_signo)


def refuse_missing(words: Sequence[str]) -> None:
    """Refuse what cannot be run, before anything is written."""
    if shutil.which(words[0]) is None:
        raise InvalidInput(
            f"there is no command '{one_line(words[0])}' that can be run; check its name, its path and "
            "whether it is executable"
        )


def _channel(stream: int) -> _Channel:
    """A pipe, or for a terminal another terminal that changes no byte."""
    if not os.isatty(stream):
        return _Channel(stream, *os.pipe(), is_terminal=False)
    ours, theirs = os.openpty()
    modes = termios.tcgetattr(stream)
    modes[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    found = _Channel(stream, ours, theirs, is_terminal=True)
    _same_size(found)
    return found


def _same_size(channel: _Channel) -> None:
    """Give the terminal of the command the size of ours."""
    if channel.is_terminal:
        with suppress(OSError):  # the terminal has gone
            size = fcntl.ioctl(channel.stream, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(channel.ours, termios.TIOCSWINSZ, size)


def _relay(channel: _Channel, heard: Heard) -> None:
    """Bytes from the command to our stream; where nobody reads that, the command is told as it would be."""
    while data := _read(channel.ours):
        now_s = time.time()
        is_read = _written(channel.stream, data)
        heard(channel.stream, data, now_s)
        if not is_read:
            break
    os.close(channel.ours)


def _read(place: int) -> bytes:
    """What comes next; nothing at the end, which a terminal reports as an error."""
    try:
        return os.read(place, READ_BYTES)
    except OSError:
        return b""


def _written(stream: int, data: bytes) -> bool:
    """Write all; False where nobody reads."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(stream, rest) :]
        except BlockingIOError:  # somebody made our stream non-blocking
            select.select((), (stream,), ())
        except OSError:
            return False
    return True
