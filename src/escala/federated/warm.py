"""`python -m escala.federated.warm`: does the work of a node, or of the server, in copies of a ready process.

Flower starts a Python for every message, which imports all that the app needs. This one imports it once,
makes the app once, and forks for every message; the copy ends with it.

    client NODE_ADDRESS APP_FOLDER                 for flower-supernode --isolation process
    server SUPERLINK_ADDRESS APP_FOLDER CREDENTIALS    for flower-superlink --isolation process
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from escala.errors import InvalidInput
from escala.federated.appsettings import FILE
from escala.federated.credentials import AUTHORITY, SECRET
from escala.federated.flower import Access, hush, run_client_task, run_server_task, tasks
from escala.federated.serving import client_in
from escala.measurement.job.orphan import end_with_launcher

PAUSE_S: Final = 0.25
"""Between two looks for work; each costs both sides some 5 ms."""
GRACE_S: Final = 5.0
"""So long a copy may take to tell what it keeps, when its reply is sent already."""
FAILED: Final = 1
THREADS: Final = "OMP_NUM_THREADS"


def main(arguments: list[str]) -> None:
    """Work for a node or a SuperLink, with the app in a folder made ready."""
    kind, address, folder, access = _asked(arguments)
    threads = int(os.environ.get(THREADS, "1"))
    os.environ[THREADS] = "1"
    hush()
    client_in(Path(folder) / FILE)
    _set_threads(1)  # a copy of a process has one of its threads, so there may be no others when it is copied
    parent = os.getpid()
    run = run_client_task if access is None else partial(run_server_task, access=access)
    copy = 0
    for token in tasks(kind, address, PAUSE_S, access):
        if copy and (token is not None or _has_ended(copy)):
            _end(copy)
            copy = 0
        if token is not None:
            copy = os.fork()
            if copy == 0:
                _set_threads(threads)
                _work(partial(run, address, token, parent))


def _asked(arguments: list[str]) -> tuple[str, str, str, Access | None]:
    match arguments:
        case ["client", address, folder]:
            return "client", address, folder, None
        case ["server", address, folder, credentials]:
            authority, secret = ((Path(credentials) / name).read_bytes() for name in (AUTHORITY, SECRET))
            return "server", address, folder, Access(authority=authority, secret=secret)
    raise InvalidInput("give client or server, an address, the folder of the app; a server its credentials")


def _set_threads(count: int) -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def _work(run: Callable[[], None]) -> NoReturn:
    """One piece of work, in the copy; whatever happens, the copy ends here."""
    code = FAILED
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Flower's server half waits for ever to send its log when the SuperLink is gone
        end_with_launcher(signal.SIGKILL)
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _has_ended(copy: int) -> bool:
    """Whether a copy is over, without taking leave of it."""
    return os.waitid(os.P_PID, copy, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(copy: int) -> None:
    """Take leave of a copy. Work comes one piece after the other, so one that is still there is stuck."""
    until_s = time.monotonic() + GRACE_S
    while not _has_ended(copy) and time.monotonic() < until_s:
        time.sleep(PAUSE_S)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
