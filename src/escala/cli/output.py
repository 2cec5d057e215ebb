"""Where output goes: data to stdout, progress to stderr, one JSON document or text for people."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console() -> "Console":
    """The console for data, 40 columns wide at least; colours only on a terminal that wants them."""
    from rich.console import Console

    from escala.report.layout import LEAST

    class Screen(Console):
        """Leaves a closed pipe to the entry point."""

        def on_broken_pipe(self) -> None:
            raise  # rich calls it while it handles the error

    screen = Screen(file=sys.stdout, highlight=False, emoji=False, markup=False)
    screen.width = max(screen.width, LEAST)
    return screen


def write_json(document: Any) -> None:
    """One JSON document with a line end."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.write(text + "\n")


def show(document: Any, as_json: bool, draw: Callable[["Console", Any], None]) -> None:
    """The document as JSON, or drawn for people."""
    if as_json:
        write_json(document)
    else:
        draw(console(), document)


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
