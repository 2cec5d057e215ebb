"""One run at a time in a folder: a lock that the system takes back when its process ends, however it ends.

The lock is on an open file of the folder, so nothing has to be cleaned up; the file says who holds it.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from escala.errors import InvalidInput, one_line

RUN, RANK = "run.lock", "rank.lock"
"""Held by whoever starts ranks, and by the first rank: it may outlive its launcher by a last save."""
UNLOCKED: Final = "{}: no file can be locked here ({}), so a second run in this folder would not be refused"


@contextmanager
def only_run(folder: Path, tell: Callable[[str], None], name: str = RUN) -> Iterator[None]:
    """Be the only run in a folder while this lasts; where another one is, say which process it is."""
    with (folder / name).open("a+", encoding="utf-8") as file:
        _lock(folder, file, tell)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _lock(folder: Path, file: TextIO, tell: Callable[[str], None]) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        tell(UNLOCKED.format(folder, "this system has no flock"))
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = one_line(file.read()) or "another process"
        raise InvalidInput(
            f"{folder} has a run that is going on ({holder}); wait for its end, or name another with -o"
        ) from None
    except OSError as error:  # a file system without locks
        tell(UNLOCKED.format(folder, (error.strerror or str(error)).lower()))
