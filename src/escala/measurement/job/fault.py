"""What a person's own code raises, as one message with file and line. Knows no torch.

This is the one place that catches every exception: code that is not ours may raise anything.
"""

import importlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Final

from escala.errors import EscalaError, InvalidInput, one_line

LONGEST: Final = 300
INSTALLED: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
OURS: Final = Path(__file__).resolve().parents[2]
IMPORTING: Final = Path(importlib.__file__).parent
FROZEN: Final = "<frozen "


class UserFault(InvalidInput):
    """The person's own code raised: where, and what it said."""


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """What runs inside is the person's: its errors are told as theirs, and what it prints goes to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except EscalaError:
        raise
    except (Exception, SystemExit) as error:
        raise UserFault(f"{what} {told(error)}") from error


def told(error: BaseException) -> str:
    """'raised ValueError: too wide (train.py:12, in loss: `x @ w`)': the last line that is the person's."""
    kind, said = type(error).__name__, str(error)
    frames = traceback.extract_tb(error.__traceback__)
    places = _places([each for each in frames if not _is_machinery(each.filename)])
    if isinstance(error, SyntaxError) and error.filename is not None:
        said, places = error.msg, [*places, _place_of_syntax(error, error.filename)]
    said = one_line(said.strip().partition("\n")[0], LONGEST)
    text = f"raised {kind}" + (f": {said}" if said else "")
    return f"{text} ({'; '.join(places)})" if places else text


def reason(error: BaseException) -> str:
    """The first line of what was raised, without its place."""
    return one_line(str(error).strip().partition("\n")[0] or type(error).__name__, LONGEST)


def _places(frames: list[traceback.FrameSummary]) -> list[str]:
    """The last line in code that was not installed as a package, then the line that raised, if another."""
    own = [each for each in frames if not _is_installed(each.filename)]
    last = frames[-1:] if not own or own[-1] is not frames[-1] else []
    return [_place(each) for each in (*own[-1:], *last)]


def _place_of_syntax(error: SyntaxError, file: str) -> str:
    """The line that Python cannot read, which no frame has."""
    line = f": `{one_line(error.text.strip())}`" if error.text else ""
    return f"{_short(file)}:{error.lineno}{line}"


def _place(frame: traceback.FrameSummary) -> str:
    line = f": `{one_line(frame.line)}`" if frame.line else ""
    return f"{_short(frame.filename)}:{frame.lineno}, in {frame.name}{line}"


def _short(name: str) -> str:
    """The file from here where it lies below, else whole."""
    path = Path(name)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else name


def _is_installed(name: str) -> bool:
    """Whether a file belongs to Python or to a package, or is none at all (generated code)."""
    return name.startswith("<") or any(Path(name).is_relative_to(each) for each in INSTALLED)


def _is_machinery(name: str) -> bool:
    """Whether a frame is escala's, or Python's way to import a module."""
    path = Path(name)
    return name.startswith(FROZEN) or path.is_relative_to(OURS) or path.parent == IMPORTING
