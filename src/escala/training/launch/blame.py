"""Which of several ranks that ended failed first, and its own words. Knows exit codes and error files.

A lost rank takes the others with it: they end a moment later because a connection closed. What a rank says of
itself is worth more than what it says of others, whatever the clock says.
"""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from escala.errors import one_line
from escala.training.launch.words import DOING

VICTIMS: Final = (
    "Connection closed by peer",
    "Connection reset",
    "Broken pipe",
    "connectFullMesh",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "NCCL communicator was aborted",
)
"""What the ranks say that lost another one."""
HANG: Final = "Hang: "
"""How the watchdog's word begins; no signal that ends the others may hide it."""
LONGEST: Final = 400
ADDRESS: Final = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How a rank ended, what it said of that and of where (empty: nothing), and the exit code for it."""

    rank: int
    end: str
    said: str
    code: int
    doing: str = ""

    def __str__(self) -> str:
        """One line, as people read it."""
        if self.said.startswith(HANG):
            return self.said
        place = f" in {self.doing}" if self.doing else ""
        return f"rank {self.rank} {self.end}{place}{f': {self.said}' if self.said else ''}"

    def repeats(self, before: "Fault | None") -> bool:
        """Whether a rank raised what it or another one had raised at the same place in the start before.

        A killed rank says nothing, and one that lost another or hung may do better next time.
        """
        if before is None or not self.said or is_victim(self.said) or self.said.startswith(HANG):
            return False
        return (_timeless(self.said), self.doing) == (_timeless(before.said), before.doing)


def first_fault(failures: Mapping[int, Any]) -> Fault:
    """The fault that others followed from; `failures` are torchelastic's, by rank."""
    rank = min(failures, key=lambda each: (_order(failures[each]), failures[each].timestamp, each))
    failure = failures[rank]
    code = failure.exitcode if failure.exitcode > 0 else 1
    return Fault(rank=rank, end=_end(failure), said=_said(failure), code=code, doing=_doing(failure))


def _order(failure: Any) -> int:
    said = _said(failure)
    if said.startswith(HANG):
        return 0
    if failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM:
        return 1
    if failure.exitcode == -signal.SIGTERM:
        return 4
    if not said:
        return 2
    return 3 if is_victim(said) else 1


def is_victim(said: str) -> bool:
    """Whether a rank failed because another one was gone."""
    return any(word in said for word in VICTIMS)


def _end(failure: Any) -> str:
    if _said(failure):
        return "failed"
    if failure.exitcode < 0:
        name = failure.signal_name()
        hint = " (the system may have run out of memory)" if failure.exitcode == -signal.SIGKILL else ""
        return f"was killed by {name}{hint}"
    return f"ended with code {failure.exitcode} and said nothing"


def _said(failure: Any) -> str:
    """The first line of what the rank wrote about its own end."""
    if not _has_words(failure):
        return ""
    return one_line(str(failure.message.get("message", "")).strip().partition("\n")[0], LONGEST)


def _doing(failure: Any) -> str:
    return str(failure.message.get("extraInfo", {}).get(DOING, "")) if _has_words(failure) else ""


def _has_words(failure: Any) -> bool:
    return Path(failure.error_file).is_file() and isinstance(failure.message, dict)


def _timeless(said: str) -> str:
    """Words without addresses of objects, which are others in every process."""
    return ADDRESS.sub("0x", said)
