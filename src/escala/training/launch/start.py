"""Starts the ranks of a plan on this machine and waits for them. Loads torch when it is called.

Rank 0 has the terminal, the other ranks print to files in the run's folder. Ctrl-C is passed to all ranks,
which save and end.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from escala.errors import EscalaError, InvalidInput, MissingExtra
from escala.measurement.bench.host import host_facts, usable_cores
from escala.training.launch.blame import Fault, first_fault

RESTARTS: Final = 3
"""Starts after the first one; the first after a lost rank may fail to meet, so fewer is no help."""
INTERRUPTED: Final = 130
RECORDED: Final = 2000
"""Collectives that PyTorch's flight recorder remembers of each rank, for the word on a hang."""


class RunFailed(EscalaError):
    """Ranks failed for good: says which one first, and what it said."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code


def start(
    devices: int,
    work: str,
    arguments: Sequence[str],
    *,
    folder: Path,
    restarts: int = RESTARTS,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Run `work` ("module:function") with its arguments as so many ranks, until they are done.

    What keeps a rank from going on is a RunFailed after `restarts` more starts, or after one that ended with
    the same error at the same place; an interrupt is a
    KeyboardInterrupt once all ranks have ended. `tell` hears of every further start.
    """
    if devices < 1:
        raise InvalidInput(f"{devices} ranks cannot be started; a plan needs one device at least")
    from torch.distributed.elastic.multiprocessing.api import SignalException

    from escala.training.launch.agent import agent_of

    command = (sys.executable, "-u", "-m", "escala.training.worker", work, *arguments)
    logs = folder / "logs"
    with environment(settings(devices, folder, os.environ)), _own_signals(), _quiet():
        agent = agent_of(devices, command, restarts=restarts, logs=logs, tell=tell)
        try:
            result = agent.run()
        except SignalException as asked:
            raise KeyboardInterrupt from asked
    if result.is_failed():
        raise _end(first_fault(result.failures), logs, is_repeated=agent.is_repeated)


def _end(fault: Fault, logs: Path, *, is_repeated: bool) -> BaseException:
    if fault.code == INTERRUPTED:
        return KeyboardInterrupt()
    if fault.code in (InvalidInput.exit_code, MissingExtra.exit_code):
        return RunFailed(fault.said, fault.code)  # of what was given, not of a rank
    again = "; it came again after a new start, so another one would not help" if is_repeated else ""
    return RunFailed(f"{fault}{again}; what the ranks printed is in {logs}", fault.code)


def settings(devices: int, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Variables that every rank gets beside those that are set: what a person has set stays."""
    wanted = {
        "OMP_NUM_THREADS": str(max(usable_cores(host_facts()) // devices, 1)),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),  # a shared one may be left broken by others
        "TORCH_FR_BUFFER_SIZE": str(RECORDED),
    }
    return {name: value for name, value in wanted.items() if name not in given}


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
    """These variables for whatever is started while this lasts."""
    os.environ.update(more)
    try:
        yield
    finally:
        for name in more:
            os.environ.pop(name, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """What the agent logs about ranks is said in one line of ours."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _own_signals() -> Iterator[None]:
    """The agent takes signals over for good; here they come back."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
