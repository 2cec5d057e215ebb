"""Ends a process whose launcher is gone, so that nothing goes on unseen. Does nothing where not on Linux."""

import ctypes
import os
import signal
import sys
from typing import Final

PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of linux/prctl.h."""


def end_with_launcher(by: signal.Signals = signal.SIGTERM) -> None:
    """Let the system send a signal to this process when the one that started it ends."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PARENT_DEATH_SIGNAL, by)
    if os.getppid() != parent:  # it ended just before
        os.kill(os.getpid(), by)
