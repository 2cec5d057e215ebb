"""How far long work is, and how long the rest takes at the same pace. Knows not what the work is."""

import time
from collections.abc import Callable
from typing import Final

SHORT_S: Final = 2.0
"""What is done in less needs no word."""
Progress = Callable[[str, float], None]


class Pace:
    """Counts bytes that were worked through of so many, and says the seconds left."""

    def __init__(self, what: str, whole_bytes: int, progress: Progress) -> None:
        self._what = what
        self._whole_bytes = whole_bytes
        self._progress = progress
        self._done_bytes = 0
        self._began_s = time.monotonic()

    def took(self, some_bytes: int) -> None:
        """Some more bytes are done."""
        self._done_bytes += some_bytes
        spent_s = time.monotonic() - self._began_s
        if spent_s > SHORT_S:
            left = max(self._whole_bytes / max(self._done_bytes, 1) - 1.0, 0.0)
            self._progress(self._what, spent_s * left)
