"""The process of one rank: `python -m escala.training.worker MODULE:FUNCTION [ARGUMENT...]`.

Finds its place among the ranks, calls function(place, arguments), and leaves its last words for whoever
started it. Knows nothing of what the function does.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from torch.distributed.elastic.multiprocessing.errors import ErrorHandler, record

from escala.errors import EscalaError
from escala.measurement.job.orphan import end_with_launcher
from escala.training.launch.blame import is_victim
from escala.training.launch.place import Place, place_of
from escala.training.launch.start import INTERRUPTED
from escala.training.launch.words import leave_words

Work = Callable[[Place, Sequence[str]], int]


def main(arguments: Sequence[str]) -> int:
    """Do the work that the first argument names; the result is the exit code."""
    end_with_launcher()
    name, *rest = arguments
    place = place_of(os.environ)
    os.environ.update(place.environment)
    module, _, function = name.partition(":")
    work: Work = getattr(import_module(module), function)
    try:
        return work(place, rest)
    except EscalaError as error:
        leave_words(str(error), doing=_doing(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


class Words(ErrorHandler):
    """Leaves the words of an exception that nobody caught."""

    def record_exception(self, e: BaseException) -> None:
        """Write the exception and where it came from."""
        leave_words(f"{type(e).__name__}: {e}", "".join(traceback.format_exception(e)), _doing(e))


def _doing(error: BaseException) -> str:
    """What the work noted of where it was."""
    return next(iter(getattr(error, "__notes__", ())), "")


def ended(arguments: Sequence[str]) -> int:
    """The exit code of the work; a rank that lost another one says so without a traceback."""
    try:
        return record(main, Words())(arguments)
    except RuntimeError as error:
        if not is_victim(str(error)):
            raise
        sys.stderr.write(f"rank {os.environ['RANK']} lost the connection to another rank\n")
        return 1


if __name__ == "__main__":
    sys.exit(ended(sys.argv[1:]))
