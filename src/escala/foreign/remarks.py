"""Launch lines that stand in comments and in docstrings of a text: how its author says it is started.

They are remarks: they count where nothing else says how the job is started, and contradict nothing.
"""

import re
from collections.abc import Iterator
from typing import Final

STARTS: Final = (
    r"torchrun\s|torchrun$|accelerate\s+launch\s|deepspeed\s+(?:-|\S+\.py)|horovodrun\s"
    r"|(?:\S*/)?python3?(?:\.\d+)?\s+-m\s+(?:torch\.distributed\.(?:run|launch)|deepspeed|accelerate)\b"
)
LAUNCH: Final = re.compile(rf"(?:^|(?<=[\s:`$(>]))((?:[A-Z][A-Z0-9_]*=\S+\s+){{0,8}}(?:{STARTS})[^\n`]*)")
COMMENT: Final = re.compile(r"^[ \t]*(#|//)|[ \t](#)[ \t]")
DOCSTRING: Final = re.compile(r'\A(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*[rR]?("""|\'\'\')(.*?)\1', re.DOTALL)


def launches(text: str) -> str | None:
    """The launch lines in comments of a text, all else blanked so that places stay; None without any."""
    found = sorted((*_of_comments(text), *_of_docstring(text)))
    if not found:
        return None
    letters, end = list[str](), 0
    for start, stop in found:
        letters += [blank(text[end:start]), _command(text[start:stop])]
        end = stop
    return "".join(letters)


def blank(text: str) -> str:
    """A text of the same lines and letters that says nothing."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def _command(text: str) -> str:
    """A command without the comment signs of its further lines."""
    return re.sub(r"(?m)(?<=\n)([ \t]*)#", r"\1 ", text)


def _of_comments(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    taken = 0
    for line in text.splitlines(keepends=True):
        sign = COMMENT.search(line) if start >= taken else None
        match = LAUNCH.search(line, sign.end()) if sign else None
        if match:
            taken = _end(text, start + match.start(1))
            yield start + match.start(1), taken
        start += len(line)


def _of_docstring(text: str) -> Iterator[tuple[int, int]]:
    """Lines of the docstring of the text that begin with a command, with or without the sign of a prompt."""
    docstring = DOCSTRING.match(text)
    if docstring is None:
        return
    start = docstring.start(2)
    for line in docstring.group(2).splitlines(keepends=True):
        match = LAUNCH.search(line)
        if match and line[: match.start(1)].strip() in ("", "$", ">", "%"):
            yield start + match.start(1), min(_end(text, start + match.start(1)), docstring.end(2))
        start += len(line)


def _end(text: str, start: int) -> int:
    """The end of a command: of its line, or of the last of the lines that go on with a backslash."""
    end = start
    while True:
        stop = text.find("\n", end)
        stop = len(text) if stop < 0 else stop
        if not text[end:stop].rstrip().endswith("\\") or stop == len(text):
            return stop
        end = stop + 1
