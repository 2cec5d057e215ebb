"""The learning engine and the Grid in this process: same cohorts, same accuracies, same codec and noise."""

from dataclasses import replace

import pytest

from escala.federated.ranges import exactly
from escala.federated.scenario import LocalData, Skew
from escala.federated.training import Algorithm, Codec, Robust, Training
from federated.boards import clients, scenario

pytestmark = pytest.mark.optional
pytest.importorskip("flwr")

from escala.federated.clientapp import client_app  # noqa: E402
from escala.federated.fleet import fleet_of, no_history  # noqa: E402
from escala.federated.grid import VirtualGrid  # noqa: E402
from escala.federated.learner import TaskLearner  # noqa: E402
from escala.federated.learning import Learning  # noqa: E402
from escala.federated.mods import mods_of, packing_of  # noqa: E402
from escala.federated.partition import exact  # noqa: E402
from escala.federated.rounds import Rounds, Standing  # noqa: E402
from escala.federated.serving import with_samples  # noqa: E402
from escala.federated.strategy import strategy_of  # noqa: E402
from escala.federated.task import digits  # noqa: E402

CLIENTS, ROUNDS = 8, 5
TRAINING = Training(
    rounds=exactly(ROUNDS), clients_per_round=CLIENTS, batch=16, local_epochs=2, learning_rate=0.1, seed=4
)


def asked(**changed):
    held = LocalData(samples=64, sample_bytes=256.0, skew=Skew.DIRICHLET, concentration=1.0)
    return scenario(clients(CLIENTS, data=held), training=replace(TRAINING, **changed))


def by_engine(given):
    task = digits()
    learning = Learning(given, task, exact(task, given.clients, given.training.seed), lambda said: None)
    return list(learning.rounds(ROUNDS))


def by_grid(given):
    training, learner = given.training, TaskLearner(digits(), given)
    fleet = with_samples(fleet_of(given, training.seed), learner)
    rounds = Rounds(
        VirtualGrid(client_app(learner, mods_of(training)), fleet, epochs=training.local_epochs),
        strategy_of(training, CLIENTS),
        training,
        fleet,
        Standing(weights=learner.first(), history=no_history(CLIENTS)),
        packing=packing_of(training),
        evaluate=learner.score,
    )
    return list(rounds.until(ROUNDS))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"clients_per_round": 3},
        {"clients_per_round": 3, "algorithm": Algorithm.SCAFFOLD},
        {"algorithm": Algorithm.FEDADAM, "server_learning_rate": 0.01},
        {"robust": Robust.MEDIAN, "attackers": 1, "least_clients": 5},
        {"codec_up": Codec(kind="top-k", keep_ratio=0.1, has_feedback=True)},
    ],
    ids=str,
)
def test_both_ask_the_same_clients_and_reach_the_same_accuracies(changed):
    engine, grid = by_engine(asked(**changed)), by_grid(asked(**changed))

    assert [each.cohort for each in grid] == [each.cohort for each in engine]
    assert [f"{each.metrics['accuracy']:.4f}" for each in grid] == [
        f"{each.metrics['accuracy']:.4f}" for each in engine
    ]
    assert len({each.metrics["accuracy"] for each in grid}) > ROUNDS // 2  # something was learnt
