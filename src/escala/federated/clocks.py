"""Which time a run lives in: that of the wall, or a virtual one that only messages move. Knows no message."""

import time
from typing import Final, Protocol

POLL_S: Final = 0.2
"""Between two looks whether a reply has come; an assumption, small beside Flower's own waits (0.5 to 3 s)."""


class Clock(Protocol):
    """Seconds since some start, and a wait that ends early when something may have arrived."""

    @property
    def now_s(self) -> float:
        """Seconds since the start."""

    @property
    def hour(self) -> int:
        """The hour of the day, UTC."""

    def wait(self, most_s: float) -> None:
        """Let time pass, at most so much."""


class WallClock:
    """The time that passes for everybody."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began_s

    @property
    def hour(self) -> int:
        """The hour of the day, UTC."""
        return time.gmtime().tm_hour

    def wait(self, most_s: float) -> None:
        """Sleep until the next look."""
        time.sleep(max(min(most_s, POLL_S), 0.0))
