"""Populations that learn: limiting cases of algorithms, stopping and going on, what is told."""

from dataclasses import replace

import numpy as np
import pytest

from escala.federated.scenario import Gate, Skew
from escala.federated.training import Algorithm, Codec, Part, Privacy, Robust, Selection
from federated.populations import clients, population, training

torch = pytest.importorskip("torch")

from escala.federated import local  # noqa: E402
from escala.federated.learning import Learning  # noqa: E402
from escala.federated.learnstate import restored, save  # noqa: E402
from escala.federated.partition import exact, whole  # noqa: E402
from escala.federated.task import digits  # noqa: E402

pytestmark = pytest.mark.optional


def learning(asked, each=None, task=None, said=None):
    """A run of ten clients on digits."""
    each, task = each or clients(10, 64), task or digits()
    rows = exact(task, [each], asked.seed)
    return Learning(population([each], asked), task, rows, (said if said is not None else []).append)


def test_one_client_with_all_data_is_centralised_sgd():
    task, asked = digits(), training(clients_per_round=1, batch=50)
    one = [clients(1, len(task))]
    run = Learning(population(one, asked), task, whole(task, one, 0), print)
    module = local.module_of(task, asked)
    weights = local.weights_of(module)

    list(run.rounds(3))
    for round_ in (1, 2, 3):
        rows = whole(task, one, 0)[0]
        weights = local.train(module, task, rows, weights, asked, client=0, round_=round_).weights

    for name, each in run.state.server.weights.items():
        assert each == pytest.approx(weights[name], abs=1e-6)


def test_clients_with_equal_data_and_one_step_are_one_large_batch():
    # 10 clients, one batch of 12 each: a round is one step on the mean gradient of all 120
    asked = training(batch=12)
    run = learning(asked, clients(10, 12))
    module = local.module_of(run._task, asked)
    weights = local.weights_of(module)

    list(run.rounds(1))
    rows = np.concatenate(run._rows)
    alone = local.train(module, run._task, rows, weights, training(batch=120), client=0, round_=1)

    for name, each in run.state.server.weights.items():
        assert each == pytest.approx(alone.weights[name], abs=1e-6)


def test_a_late_update_counts_later_and_less():
    # messages take 0.7 s each way; the tenth trains 12 samples for 4 s and is there in the second round
    asked = training(round_deadline_s=3.0, merges_late=True, batch=12)
    run = learning(asked, clients(10, 12))
    run._population.fleet.sample_s[9] = 4 / 12

    first, second = list(run.rounds(2))

    assert (len(first.returned), first.lost) == (9, {"late": 1})
    assert 9 in second.returned
    assert second.metrics["merged_late"] == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"algorithm": Algorithm.FEDAVG},
        {"algorithm": Algorithm.FEDPROX, "proximal": 0.1},
        {"algorithm": Algorithm.FEDADAM, "server_learning_rate": 0.01},
        {"algorithm": Algorithm.FEDYOGI},
        {"algorithm": Algorithm.SCAFFOLD},
        {"algorithm": Algorithm.FEDBUFF, "buffer": 5},
        {"codec_up": Codec(kind="int8")},
        {"codec_up": Codec(kind="top-k", keep_ratio=0.1, has_feedback=True)},
        {"codec_down": Codec(kind="int8")},
        {"part": Part.LAST_LAYERS},
        {"robust": Robust.MEDIAN, "least_clients": 5},
        {"selection": Selection.UTILITY, "clients_per_round": 5},
    ],
    ids=lambda each: "-".join(str(getattr(value, "kind", value)) for value in each.values()),
)
def test_every_way_to_train_learns_and_goes_on_where_it_stopped(changed, tmp_path):
    asked = training(**{"local_epochs": 2, "learning_rate": 0.5, **changed})
    through, stopped = learning(asked), learning(asked)

    records = list(through.rounds(6))
    first = list(stopped.rounds(3))
    save(stopped.state, "this run", tmp_path / "state.npz")
    again = learning(asked)
    assert restored(tmp_path / "state.npz", "another run") is None
    again.state = restored(tmp_path / "state.npz", "this run")
    rest = list(again.rounds(6))

    assert first + rest == records
    assert [each.round for each in records] == [1, 2, 3, 4, 5, 6]
    assert records[-1].metrics["loss"] < records[0].metrics["loss"] - 0.05
    assert records[-1].metrics["train_loss"] < records[0].metrics["train_loss"]


def test_bytes_are_those_of_the_tasks_own_messages():
    # six float32 tensors with a header of 128 bytes each, and the assumed overhead of a message; ten clients
    plain = next(learning(training()).rounds(1))
    int8 = next(learning(training(codec_up=Codec(kind="int8"))).rounds(1))

    assert plain.down_bytes == plain.up_bytes == 10 * (17_226 * 4 + 6 * 128 + 4096)
    assert int8.up_bytes == 10 * (17_226 + 6 * (128 + 4 + 128) + 4096)


def test_a_client_whose_numbers_are_not_finite_is_set_aside():
    task = digits()
    run = learning(training(), task=task)
    task.inputs[run._rows[3]] = np.nan

    record = next(run.rounds(1))

    spoilt = {client for client, rows in enumerate(run._rows) if np.isnan(task.inputs[rows]).any()}
    assert 3 in spoilt
    assert record.lost == {"invalid": len(spoilt)}
    assert set(record.returned) == set(range(10)) - spoilt
    assert np.isfinite(record.metrics["loss"])


def test_noise_spends_epsilon_where_an_accountant_can_tell():
    private = Privacy(place="central", noise_ratio=1.0, clip=1.0, delta=1e-5)

    records = list(learning(training(privacy=private)).rounds(2))

    assert 0 < records[0].epsilon < records[1].epsilon


def test_accuracy_of_clients_is_told_by_their_mixes_of_labels():
    asked = training(rounds=training().rounds, local_epochs=2)
    skewed = clients(10, 64, Skew.BY_LABEL, labels=2)

    even, uneven = (list(learning(asked, each).rounds(3))[-1].metrics for each in (None, skewed))

    assert even["accuracy_worst_tenth"] <= even["accuracy"] + even["accuracy_spread"]
    assert uneven["accuracy_spread"] > even["accuracy_spread"]


def test_clients_whose_data_are_too_poor_are_kept_out_and_named():
    # client 3 has ten samples of the twenty that the gate wants
    few = [clients(3, 64), clients(1, 10), clients(2, 64)]
    asked, said, task = training(clients_per_round=6), [], digits()
    scenario = replace(population(few, asked), gate=Gate(least_samples=20))

    run = Learning(scenario, task, exact(task, few, 0), said.append)

    assert [each.cohort for each in run.rounds(2)] == [(0, 1, 2, 4, 5)] * 2
    assert said == ["client 3 is kept out: 10 samples, 20 are needed"]
