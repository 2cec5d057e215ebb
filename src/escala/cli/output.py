"""Where output goes: data to stdout, progress to stderr, one JSON document or text for people."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from rich.console import Console

STDOUT, STDERR = 1, 2  # descriptors
LINE_EVERY_S: Final = 10.0


def console(file: TextIO | None = None) -> "Console":
    """The console for data, 40 columns wide at least; colours only on a terminal that wants them."""
    from rich.console import Console

    from escala.report.layout import LEAST

    class Screen(Console):
        """Leaves a closed pipe to the entry point."""

        def on_broken_pipe(self) -> None:
            raise  # rich calls it while it handles the error

    screen = Screen(file=file or sys.stdout, highlight=False, emoji=False, markup=False)
    screen.width = max(screen.width, LEAST)
    return screen


def write_json(document: Any) -> None:
    """One JSON document with a line end."""
    sys.stdout.write(json_bytes(document).decode())


def json_bytes(document: Any) -> bytes:
    """The document as JSON for people and programs, with a line end."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def show(document: Any, as_json: bool, draw: Callable[["Console", Any], None]) -> None:
    """The document as JSON, or drawn for people."""
    if as_json:
        write_json(document)
    else:
        draw(console(), document)


def quiet(*_: object) -> None:
    """Takes what is told and says nothing: of other ranks, or where something else tells it."""


def note(text: str) -> None:
    """One line of log for people, on stderr."""
    sys.stderr.write(f"{text}\n")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Says what is going on while it lasts, on a terminal only."""
    from rich.console import Console

    errors = Console(file=sys.stderr, highlight=False)
    if not errors.is_terminal or errors.is_dumb_terminal:
        yield
        return
    with errors.status(f"{what}; Ctrl-C stops"):
        yield


@contextmanager
def stdout_kept() -> Iterator[None]:
    """What other processes and libraries write to stdout while this lasts (workers, NCCL) goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, STDOUT)
        os.close(kept)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends what lasts long as Ctrl-C does; in a thread nobody can arrange that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progressing() -> Iterator[Callable[[str, float], None]]:
    """Takes what is being done and the seconds left, or NaN: in place on a terminal, else lines at times."""
    from rich.console import Console

    errors = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    if errors.is_terminal and not errors.is_dumb_terminal:
        with errors.status("starting; Ctrl-C ends early") as status:
            yield lambda what, left_s: status.update(f"{what}{_left(left_s)}; Ctrl-C ends early")
        return
    said_s, said = float("-inf"), ""

    def line(what: str, left_s: float) -> None:
        """Say it, unless something was said just now, or the same before."""
        nonlocal said_s, said
        text = f"{what}{_left(left_s)}"
        if text != said and time.monotonic() - said_s >= LINE_EVERY_S:
            said_s, said = time.monotonic(), text
            note(text)

    yield line


def _left(left_s: float) -> str:
    """The seconds left, where anybody knows them."""
    return "" if math.isnan(left_s) else f"; {max(left_s, 0):.0f} s left"
