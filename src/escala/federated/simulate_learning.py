"""Runs of the learning engine that a person asks for: task, samples of clients, where a stopped run goes on.

Loads torch when a run is prepared.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from escala import __version__
from escala.errors import MissingExtra
from escala.federated.learnstate import restored, save
from escala.federated.partition import Rows, exact, mixes, whole
from escala.federated.roundrecord import Round
from escala.federated.scenario import Scenario
from escala.federated.simulate import Case
from escala.federated.task import INSTALL, Task, task_of

if TYPE_CHECKING:
    from escala.federated.learning import Learning

LEARNING: Final = "learning"
STATE: Final = "state.npz"
SAVE_EVERY_S: Final = 10.0
DEALS: Final = {"exact": exact, "whole": whole}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is learnt: a task by name, net and columns; and how its samples are dealt to clients."""

    task: str
    net: str | None
    label: str
    user: str | None
    deal: str


def learning_case(
    case: Case, asked: Asked, task: Task, count: int, say: Callable[[str], None]
) -> tuple[Case, Iterator[Round]]:
    """The case with the network and samples of the task, its rounds that are done, and those to come."""
    try:
        from escala.federated.learning import Learning
    except ModuleNotFoundError as error:
        raise MissingExtra(f"learning needs {error.name}, which is not installed: {INSTALL}") from None
    rows = DEALS[asked.deal](task, case.scenario.clients, case.scenario.training.seed)
    learning = Learning(case.scenario, task, rows, say)
    run = _run_of(case.scenario, task, rows)
    file = case.file.parent / STATE
    state = restored(file, run)
    done = () if state is None else _records(case.file, state.done)
    if state is not None and len(done) == state.done:
        learning.state = state
        say(f"going on after round {state.done:,} of a run in {case.file.parent}")
    else:
        done = ()
        file.unlink(missing_ok=True)  # it knows nothing of the rounds to come
    scenario = replace(learning.scenario, assumed=(_told(task, rows), *learning.scenario.assumed))
    own = replace(case, scenario=scenario, fleet=learning.fleet, done=done[:count])
    return own, _rounds(learning, count, run, file)


def asked_task(asked: Asked) -> Task:
    """The task that is asked for."""
    return task_of(asked.task, net=asked.net, label=asked.label, user=asked.user)


def _rounds(learning: "Learning", count: int, run: str, file: Path) -> Iterator[Round]:
    """New rounds; the state is written at times and at any end, and never knows a round that is not written.

    Who asks for the next round has written the last one down. A round that the state does not know is cut
    off when the run goes on, and done again.
    """
    saved_s, written = time.monotonic(), learning.state
    try:
        for record in learning.rounds(count):
            yield record
            written = learning.state
            if time.monotonic() - saved_s > SAVE_EVERY_S:
                save(written, run, file)
                saved_s = time.monotonic()
    finally:
        save(written, run, file)


def _records(file: Path, count: int) -> tuple[Round, ...]:
    """The first records of a file, as far as they are there."""
    try:
        lines = file.read_bytes().splitlines()[:count]
        return tuple(msgspec.json.decode(line, type=Round) for line in lines)
    except (OSError, msgspec.DecodeError):
        return ()


def _run_of(scenario: Scenario, task: Task, rows: Rows) -> str:
    """What tells a run from all others: version, scenario, samples of every client, test set."""
    digest = hashlib.sha256(f"{__version__} {scenario!r} {task.name}".encode())
    held: list[Any] = [task.inputs, task.labels, task.test_inputs, task.test_labels, *rows]
    for each in held:
        digest.update(np.ascontiguousarray(each).tobytes())
    return digest.hexdigest()


def _told(task: Task, rows: Rows) -> str:
    """Who has how much, and how uneven it is."""
    counts = np.array([len(each) for each in rows])
    distance = mixes(task, rows).distance
    twice = 1 - len(np.unique(np.concatenate(rows))) / counts.sum()
    return (
        f"clients have {counts.min():,} to {counts.max():,} samples of {task.name}; {twice:.0%} are repeats; "
        f"their labels are {distance.mean():.2f} from everybody's on average (total variation, 0 is alike)"
    )
