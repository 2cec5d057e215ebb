"""The order of rounds to an accuracy that McMahan et al. 2017 publish (table 2, MNIST), on digits.

There a CNN needs for 99 %, IID and not: FedSGD 626 and 483, E = 1 34 and 350, E = 5 20 and 229 (B = 10).
More local work takes fewer rounds; clients with two labels each take more rounds than clients alike, as soon
as they work longer than one step.
"""

import pytest

from escala.federated.scenario import Skew
from federated.populations import clients, population, training

pytest.importorskip("torch")

from escala.federated.learning import Learning
from escala.federated.partition import whole
from escala.federated.task import digits

pytestmark = [pytest.mark.optional, pytest.mark.slow]
TARGET = 0.9
MOST_ROUNDS = 400
ALIKE = clients(20, 72)
TWO_LABELS = clients(20, 72, Skew.BY_LABEL, labels=2)
SGD, ONE, FIVE = {"batch": 1000}, {"batch": 10}, {"batch": 10, "local_epochs": 5}


def rounds_to_target(each, work: dict[str, int], seed: int) -> int:
    """Rounds until the accuracy is first reached; ten of twenty clients a round."""
    task = digits()
    asked = training(clients_per_round=10, learning_rate=0.2, seed=seed, **work)
    run = Learning(population([each], asked), task, whole(task, [each], seed), print)
    for record in run.rounds(MOST_ROUNDS):
        if record.metrics["accuracy"] >= TARGET:
            return record.round
    return MOST_ROUNDS + 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.more) for seed in (1, 2))])
def test_more_local_work_takes_fewer_rounds_and_uneven_labels_more(seed: int):
    alike, uneven = (
        [rounds_to_target(each, work, seed) for work in (SGD, ONE, FIVE)] for each in (ALIKE, TWO_LABELS)
    )

    assert alike[0] > alike[1] > alike[2]
    assert uneven[0] > uneven[1] > uneven[2]
    assert uneven[1] > alike[1]
    assert uneven[2] > alike[2]
