r"""Bytes of a stream as lines with the time at which each began. Knows no file and no process.

A carriage return ends a line as a line feed does: it is how progress bars overwrite themselves. Of lines that
are overwritten, one a second is kept.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from escala.measurement.sampling.sample import utc

END: Final = re.compile(rb"\r\n|\r|\n")
LONGEST: Final = 2**20
OVERWRITTEN_EVERY_S: Final = 1.0


class Stamper:
    """One stream; what a program writes without a line end waits until the end comes."""

    def __init__(self) -> None:
        self._open, self._open_since_s = b"", 0.0
        self._overwritten_s = float("-inf")

    def add(self, data: bytes, now_s: float) -> bytes:
        """The lines that some bytes complete, each with its time."""
        if not self._open:
            self._open_since_s = now_s
        text, found, end = self._open + data, [], 0
        for match in END.finditer(text):
            if match[0] == b"\r" and match.end() == len(text):  # a line feed may follow
                break
            found.append(self._kept(text[end : match.start()], match[0]))
            end, self._open_since_s = match.end(), now_s
        self._open = text[end:]
        if len(self._open) > LONGEST:
            found.append(self.rest())
        return b"".join(found)

    def rest(self) -> bytes:
        """The line that has no end yet, with its time."""
        text, self._open = self._open.rstrip(b"\r"), b""
        return _line(text, self._open_since_s) if text else b""

    def _kept(self, text: bytes, end: bytes) -> bytes:
        """A whole line; nothing of one that is overwritten too soon."""
        since_s = self._open_since_s
        if end == b"\r":
            if not text or since_s - self._overwritten_s < OVERWRITTEN_EVERY_S:
                return b""
            self._overwritten_s = since_s
        return _line(text, since_s)


def _line(text: bytes, at_s: float) -> bytes:
    return _stamp(at_s) + text + b"\n"


@lru_cache(maxsize=8)  # lines that come together have one time
def _stamp(at_s: float) -> bytes:
    return f"{utc(datetime.fromtimestamp(at_s, UTC))} ".encode()
