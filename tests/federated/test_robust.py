"""Robust means: by hand, as Flower's strategies, and against clients that lie."""

from dataclasses import replace

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.ranges import exactly
from escala.federated.robust import robust_mean, trim_ratio
from escala.federated.training import Robust, Training

PLAIN = Training(rounds=exactly(1), clients_per_round=9)
MEDIAN = replace(PLAIN, robust=Robust.MEDIAN, attackers=2, least_clients=5)
TRIMMED = replace(PLAIN, robust=Robust.TRIMMED_MEAN, attackers=2, least_clients=5)
KRUM = replace(PLAIN, robust=Robust.KRUM, attackers=2, least_clients=7)
BOUND = replace(PLAIN, robust=Robust.NORM_BOUND, norm_bound=2.0, attackers=2)
RULES = (MEDIAN, TRIMMED, KRUM, BOUND)


def column(*numbers):
    return {"w": np.array(numbers, np.float32)[:, None]}


def shares(clients):
    return np.full(clients, 1 / clients)


def test_rules_by_hand():
    # seven updates, two of them lies
    given = column(1, 2, 3, 4, 5, 1000, -1000)

    assert robust_mean(PLAIN, given, shares(7))["w"] == pytest.approx(15 / 7, rel=1e-6)
    assert robust_mean(MEDIAN, given, shares(7))["w"] == 3
    # floor(2/5 * 7) = 2 off each end leaves 2, 3, 4
    assert robust_mean(TRIMMED, given, shares(7))["w"] == 3
    # bound 2: 1, 2, 2, 2, 2, 2, -2
    assert robust_mean(BOUND, given, shares(7))["w"] == pytest.approx(9 / 7, rel=1e-6)


def test_krum_takes_the_update_with_the_nearest_neighbours():
    # n = 7, f = 2: the 3 nearest; 3 has 1, 1, 4 = 6 (2 and 4: 1 + 1 + 4 = 6 too, 3 is not first)
    given = column(1, 2, 3.1, 4, 5, 1000, -1000)

    # 2: 1 + 1.21 + 4 = 6.21; 3.1: 0.81 + 1.21 + 3.61 = 5.63; 4: 0.81 + 1 + 4 = 5.81
    assert robust_mean(KRUM, given, shares(7))["w"] == np.float32(3.1)


def test_trimming_takes_off_enough_whatever_the_last_digits():
    # floor(1/49 * 49) has to be 1, though 1/49 * 49 is 0.9999999999999999
    assert int(1 / 49 * 49) == 0
    assert int(trim_ratio(replace(TRIMMED, attackers=1, least_clients=49)) * 49) == 1


@pytest.mark.parametrize("training", [MEDIAN, TRIMMED, KRUM], ids=lambda each: each.robust.value)
def test_too_few_updates_for_a_rule_are_refused(training):
    with pytest.raises(InvalidInput, match="repeat the round or ask more clients"):
        robust_mean(training, column(1, 2, 3, 4), shares(4))


@pytest.mark.parametrize("training", RULES, ids=lambda each: each.robust.value)
def test_two_liars_of_nine_do_not_carry_the_weights_away(training):
    # seven clients pull towards (1, ..., 1) with some noise, two push hard the other way
    truth, draw = np.ones(50, np.float32), np.random.default_rng(3)
    weights = np.zeros(50, np.float32)
    plain = weights.copy()
    for _ in range(40):
        honest = 0.2 * (truth - weights) + draw.normal(0, 0.02, (7, 50))
        mean = {"w": np.concatenate([honest, np.full((2, 50), -5.0)]).astype(np.float32)}
        weights = weights + robust_mean(training, mean, shares(9))["w"]
        honest = 0.2 * (truth - plain) + draw.normal(0, 0.02, (7, 50))
        lies = {"w": np.concatenate([honest, np.full((2, 50), -5.0)]).astype(np.float32)}
        plain = plain + robust_mean(PLAIN, lies, shares(9))["w"]

    assert np.abs(plain - truth).max() > 5
    # a bound limits what two of nine can do: 2 * 2 / 9 a round against 0.2 * 7 / 9 of the way back
    assert np.linalg.norm(weights - truth) < (4 if training is BOUND else 0.8)


@pytest.mark.optional
@pytest.mark.parametrize("training", [MEDIAN, TRIMMED, KRUM], ids=lambda each: each.robust.value)
def test_rules_are_those_of_flower(training):
    app = pytest.importorskip("flwr.app")
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    pytest.importorskip("escala.federated.flower").become_server()
    given = np.random.default_rng(5).normal(size=(9, 4, 3)).astype(np.float32)
    strategy = {
        Robust.MEDIAN: lambda: strategies.FedMedian(),
        Robust.TRIMMED_MEAN: lambda: strategies.FedTrimmedAvg(beta=trim_ratio(training)),
        Robust.KRUM: lambda: strategies.Krum(num_malicious_nodes=training.attackers),
    }[training.robust]()
    replies = []
    for client, update in enumerate(given):
        asked = app.Message(app.RecordDict(), client + 2, "train")
        content = app.RecordDict(
            {
                "arrays": app.ArrayRecord({"w": app.Array(update)}),
                "metrics": app.MetricRecord({"num-examples": 1}),
            }
        )
        replies.append(app.Message(content, reply_to=asked))

    arrays, _ = strategy.aggregate_train(1, replies)

    assert np.allclose(arrays["w"].numpy(), robust_mean(training, {"w": given}, shares(9))["w"], atol=1e-6)
