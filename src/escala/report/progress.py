"""How far the reading of files is, and how long the rest takes at the same pace. Knows no format."""

import time
from collections.abc import Callable
from typing import Final

SHORT_S: Final = 2.0
"""What is read in less needs no word."""
Progress = Callable[[str, float], None]


class Reading:
    """Counts bytes that were read of so many, and says the seconds left."""

    def __init__(self, whole_bytes: int, progress: Progress) -> None:
        self._whole_bytes = whole_bytes
        self._progress = progress
        self._read_bytes = 0
        self._began_s = time.monotonic()

    def took(self, some_bytes: int) -> None:
        """Some more bytes were read."""
        self._read_bytes += some_bytes
        spent_s = time.monotonic() - self._began_s
        if spent_s > SHORT_S:
            left = max(self._whole_bytes / max(self._read_bytes, 1) - 1.0, 0.0)
            self._progress("reading", spent_s * left)
