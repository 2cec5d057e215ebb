"""Real Flower over loopback with TLS: the same numbers as the Grid in this process, whatever is killed."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from escala.errors import EscalaError
from escala.federated.ranges import exactly
from escala.federated.scenario import LocalData
from escala.federated.training import Algorithm, Training

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("flwr")

from escala.federated.clientapp import client_app  # noqa: E402
from escala.federated.federation import make_folder, new_settings, write_connection  # noqa: E402
from escala.federated.fleet import fleet_of, no_history  # noqa: E402
from escala.federated.grid import VirtualGrid  # noqa: E402
from escala.federated.learner import learner_of  # noqa: E402
from escala.federated.ledger import read_ledger  # noqa: E402
from escala.federated.manifest import audit  # noqa: E402
from escala.federated.rounds import Rounds, Standing  # noqa: E402
from escala.federated.run import RunFailed, federation_of, run_here, started  # noqa: E402
from escala.federated.serverstate import STATE, rounds_of  # noqa: E402
from escala.federated.serving import PID  # noqa: E402
from escala.federated.strategy import strategy_of  # noqa: E402
from federated.boards import clients, scenario  # noqa: E402

SOFTMAX = f"{Path(__file__).with_name('softmax.py')}:learner"
MOST_S = 240.0


def asked(task, rounds, folder, nodes=2, **changed):
    """A run of a task by so many nodes that all take part in every round."""
    training = Training(
        rounds=exactly(rounds),
        clients_per_round=nodes,
        least_clients=nodes,
        batch=16,
        learning_rate=0.1,
        **changed,
    )
    held = LocalData(samples=64, sample_bytes=256.0)
    given = scenario(clients(nodes, data=held), training=training)
    return new_settings(given, folder, rounds=rounds, task=task)


def in_process(settings):
    """The same rounds over the Grid in this process."""
    training, fleet = settings.scenario.training, fleet_of(settings.scenario, settings.scenario.training.seed)
    learner = learner_of(settings.task, settings.scenario)
    standing = Standing(weights=learner.first(), history=no_history(len(fleet)))
    grid = VirtualGrid(client_app(learner), fleet, epochs=training.local_epochs)
    rounds = Rounds(
        grid, strategy_of(training, len(fleet)), training, fleet, standing, evaluate=learner.score
    )
    return list(rounds.until(settings.rounds))


def said(what, left_s):
    if not what.startswith(("round", "waiting for round")):
        print(f"{time.monotonic():.1f} {what}")


def left_over(folder):
    """Processes that name the folder in their command or environment."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.pid != os.getpid() and str(folder) in " ".join(
                [*each.cmdline(), *each.environ().values()]
            ):
                found.append(each.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_digits_on_flower_give_the_accuracies_of_the_grid_in_this_process(tmp_path):
    settings = asked("digits", 3, tmp_path / "run", local_epochs=5)

    ended = run_here(settings, 2, said, print)

    expected = in_process(settings)
    assert [f"{each.metrics['accuracy']:.4f}" for each in ended.rounds] == [
        f"{each.metrics['accuracy']:.4f}" for each in expected
    ]
    assert [each.weights_digest for each in ended.rounds] == [each.weights_digest for each in expected]
    found = audit(tmp_path / "run")
    assert found.faults == ()
    assert [each.samples for each in found.manifest.data] == [64, 64]
    assert [(each.down_bytes, each.up_bytes) for each in ended.rounds] == [
        (each.down_bytes, each.up_bytes) for each in expected
    ]
    assert len(read_ledger(tmp_path / "run" / "messages.jsonl")) == 3 * 2 * 2
    assert ended.submissions == 1
    assert left_over(tmp_path) == []


def test_a_run_in_which_everything_is_killed_ends_as_an_undisturbed_one(tmp_path):
    settings = asked(SOFTMAX, 7, tmp_path / "run", algorithm=Algorithm.SCAFFOLD)
    make_folder(settings, 2)
    federation = federation_of(settings, 2)
    write_connection(federation)
    victims = ["node-1", "worker-0", "rounds", "superlink"]

    def kill_at_rounds(what, left_s):
        said(what, left_s)
        if victims and len(rounds_of(federation.folder)) > 4 - len(victims):
            name = victims.pop(0)
            said(f"killing {name}", 0)
            is_rounds = name == "rounds"
            pid = (federation.folder / PID).read_text() if is_rounds else running.supervisor.pid(name)
            os.kill(int(pid), signal.SIGKILL)

    with started(federation, kill_at_rounds, print) as running:
        ended = running.followed()
        (federation.folder / STATE).write_bytes(b"garbage")
        with pytest.raises(RunFailed, match="is no state of a server"):
            running.followed()

    assert victims == []
    assert [each.round for each in ended.rounds] == list(range(1, 8))
    assert [each.weights_digest for each in ended.rounds] == [
        each.weights_digest for each in in_process(settings)
    ]
    assert ended.submissions >= 2
    assert {"node-1", "worker-0", "superlink"} <= set(ended.restarted)
    assert left_over(tmp_path) == []


def test_a_task_that_is_none_is_told_before_anything_is_written(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def learner():\n    return 3\n")

    with pytest.raises(EscalaError, match="returned int without training"):
        run_here(asked(f"{broken}:learner", 1, tmp_path / "run"), 2, said, print)

    assert not (tmp_path / "run").exists()
