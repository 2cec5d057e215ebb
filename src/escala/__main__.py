"""The console script and `python -m escala`: quiet from the first moment on. Knows no verb.

Loading the command line takes a tenth of a second; Ctrl-C within it ends with 130 as later on. A stream that
is closed from the start (`>&-`) swallows what is written to it.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130


def main() -> int:
    """Run the command line; the result is the exit code."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from escala.cli.app import main as run

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    return run()


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
