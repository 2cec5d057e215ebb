"""`python -m escala.federated.warm`: does the work of one SuperNode in copies of a process that is ready.

Flower starts a Python for every message, which imports all that the app needs. This one imports it once,
makes the app once, and forks for every message; the copy ends with it.
For `flower-supernode --isolation process`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Final, NoReturn

from escala.errors import InvalidInput
from escala.federated.appsettings import FILE
from escala.federated.flower import client_tasks, hush, run_task
from escala.federated.serving import client_in

PAUSE_S: Final = 0.05
FAILED: Final = 1


def main(arguments: list[str]) -> None:
    """Work for the SuperNode at an address, with the app in a folder made ready."""
    if len(arguments) != 2:
        raise InvalidInput("give the address of the SuperNode's own API and the folder of the app")
    address, folder = arguments
    hush()
    _one_thread()
    client_in(Path(folder) / FILE)
    parent = os.getpid()
    for token in client_tasks(address, PAUSE_S):
        _reap()
        if token is not None and os.fork() == 0:
            _work(address, token, parent)


def _one_thread() -> None:
    """A copy of a process has only one of its threads; so there may be no others when it is copied."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _work(address: str, token: str, parent: int) -> NoReturn:
    """One message, in the copy; whatever happens, the copy ends here."""
    code = FAILED
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run_task(address, token, parent)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap() -> None:
    """Take leave of copies that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(sys.argv[1:])
