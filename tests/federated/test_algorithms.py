"""Server updates by hand, and FedAdam and FedYogi as Flower's own strategies compute them."""

import numpy as np
import pytest

from escala.federated.algorithms import (
    counts_of,
    own_control,
    pull_of,
    server_of,
    shares_of,
    stepped,
    with_controls,
)
from escala.federated.training import Algorithm
from escala.federated.weights import stacked, weighted_sum
from federated.populations import training


def one(value: float) -> dict[str, np.ndarray]:
    return {"w": np.array([value], np.float32)}


def test_fedavg_weighs_by_samples():
    # 10 and 30 samples, changes 1 and 5: (10 * 1 + 30 * 5) / 40 = 4
    asked = training(algorithm=Algorithm.FEDAVG)
    shares = shares_of(asked, counts_of(asked, np.array([10, 30]), np.zeros(2)))

    change = weighted_sum(stacked([one(1.0), one(5.0)]), shares)

    assert change["w"][0] == 4.0
    assert stepped(server_of(asked, one(2.0)), asked, change).weights["w"][0] == 6.0


def test_fedbuff_weighs_by_staleness_and_divides_by_the_number():
    # staleness 0 and 3: 1 and 1/2; (1 * 1 + 1/2 * 5) / 2 = 1.75
    asked = training(algorithm=Algorithm.FEDBUFF, buffer=2)
    shares = shares_of(asked, counts_of(asked, np.array([10, 30]), np.array([0, 3])))

    assert weighted_sum(stacked([one(1.0), one(5.0)]), shares)["w"][0] == 1.75


def test_a_late_update_counts_half_after_three_rounds():
    # 10 samples / sqrt(1 + 3)
    found = counts_of(training(merges_late=True), np.array([10, 10]), np.array([0, 3]))

    assert found.tolist() == [10, 5]


def test_scaffold_by_hand():
    # of 4 clients 2 return: changes -1 and -3 in 2 steps at rate 0.5; variates begin at 0, so pulls are 0
    # own variate: (start - end) / (2 * 0.5) = 1 and 3; the server's: 0 + (1 + 3) / 4 = 1; weights: 0 - 2
    asked = training(algorithm=Algorithm.SCAFFOLD, learning_rate=0.5)
    server = server_of(asked, one(0.0))
    pull = pull_of(server, one(0.0))
    changes = [one(-1.0), one(-3.0)]

    own = [own_control(asked, pull, each, 2) for each in changes]
    shares = shares_of(asked, counts_of(asked, np.array([1, 99]), np.zeros(2)))
    server = with_controls(stepped(server, asked, weighted_sum(stacked(changes), shares)), stacked(own), 4)

    assert [each["w"][0] for each in own] == [1.0, 3.0]
    assert server.control["w"][0] == 1.0
    assert server.weights["w"][0] == -2.0
    assert pull_of(server, own[1])["w"][0] == 1.0 - 3.0


@pytest.mark.optional
@pytest.mark.parametrize(
    ("algorithm", "name"), [(Algorithm.FEDADAM, "FedAdam"), (Algorithm.FEDYOGI, "FedYogi")]
)
def test_adaptive_servers_step_as_flowers_own(algorithm: Algorithm, name: str):
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    app = pytest.importorskip("flwr.app")
    asked = training(algorithm=algorithm)
    draws = np.random.default_rng(0)
    weights = {
        "a": draws.normal(size=(3, 4)).astype(np.float32),
        "b": draws.normal(size=5).astype(np.float32),
    }
    flowers, ours = getattr(strategies, name)(), server_of(asked, weights)
    flowers.current_arrays = weights

    for round_ in range(1, 6):
        many = [
            {
                key: each + draws.normal(scale=0.1, size=each.shape).astype(np.float32)
                for key, each in weights.items()
            }
            for _ in range(3)
        ]
        samples = np.array([10, 20, 50])
        changes = stacked([{key: each[key] - ours.weights[key] for key in each} for each in many])
        shares = shares_of(asked, counts_of(asked, samples, np.zeros(3)))
        ours = stepped(ours, asked, weighted_sum(changes, shares))
        theirs = _aggregated(flowers, app, round_, many, samples)
        flowers.current_arrays = theirs

        for key in weights:
            assert ours.weights[key] == pytest.approx(theirs[key], abs=1e-6)


def _aggregated(flowers, app, round_, many, samples):
    """What a strategy of Flower makes of replies."""

    class Reply:
        def __init__(self, arrays, count):
            record = app.ArrayRecord({key: app.Array(each) for key, each in arrays.items()})
            self.content = app.RecordDict(
                {"arrays": record, "metrics": app.MetricRecord({"num-examples": int(count)})}
            )

        def has_error(self):
            return False

        def has_content(self):
            return True

    replies = [Reply(each, count) for each, count in zip(many, samples, strict=True)]
    arrays, _ = flowers.aggregate_train(round_, replies)
    return {key: each.numpy() for key, each in arrays.items()}
