"""Clients trained at once have the updates of clients trained alone."""

import numpy as np
import pytest

from escala.federated.training import Algorithm
from federated.populations import training

torch = pytest.importorskip("torch")

from escala.federated import local  # noqa: E402
from escala.federated.task import Task, digits  # noqa: E402
from escala.federated.vectorised import OneByOne, Stacked, trainer_of, why_not  # noqa: E402

pytestmark = pytest.mark.optional
UNEQUAL = {3: np.arange(40), 8: np.arange(100, 107), 1: np.arange(200, 216), 5: np.arange(300, 301)}


def by_client(trainer, rows, weights, pulls):
    """Change, samples, steps and losses of each client."""
    found = {}
    for part in trainer(rows, weights, 2, pulls):
        for at, client in enumerate(part.clients):
            change = {name: each[at] for name, each in part.changes.items()}
            numbers = (part.samples[at], part.steps[at], part.loss[at], part.rms_loss[at])
            found[int(client)] = change, numbers
    return found


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("algorithm", [Algorithm.FEDAVG, Algorithm.FEDPROX, Algorithm.SCAFFOLD])
def test_at_once_is_as_alone_for_unequal_samples(net: str, algorithm: Algorithm):
    task = digits(net)
    asked = training(algorithm=algorithm, proximal=0.5, local_epochs=2, batch=16, seed=3)
    module = local.module_of(task, asked)
    weights, draws = local.weights_of(module), np.random.default_rng(0)
    pulls = {}
    if algorithm is Algorithm.SCAFFOLD:
        pulls = {
            client: {
                name: draws.normal(scale=0.1, size=each.shape).astype(np.float32)
                for name, each in weights.items()
            }
            for client in UNEQUAL
        }

    at_once = by_client(Stacked(module, task, asked), UNEQUAL, weights, pulls)
    alone = by_client(OneByOne(module, task, asked), UNEQUAL, weights, pulls)

    assert at_once.keys() == alone.keys() == UNEQUAL.keys()
    for client, (change, numbers) in alone.items():
        assert at_once[client][1] == pytest.approx(numbers, rel=1e-5)
        for name, each in change.items():
            assert np.abs(each).max() > 1e-4
            assert at_once[client][0][name] == pytest.approx(each, abs=1e-6)


def test_parts_of_a_cohort_are_as_the_whole():
    task, asked = digits(), training()
    module = local.module_of(task, asked)
    weights = local.weights_of(module)
    whole, parts = Stacked(module, task, asked), Stacked(module, task, asked)
    parts.at_once = 2

    one, several = (by_client(each, UNEQUAL, weights, {}) for each in (whole, parts))

    for client, (change, _) in one.items():
        for name, each in change.items():
            assert several[client][0][name] == pytest.approx(each, abs=1e-6)


def test_clients_with_equal_data_and_one_step_are_one_large_batch():
    # 4 clients of 8 samples, one batch each: the mean of their changes is the change of one batch of all 32
    task, asked = digits(), training(batch=8)
    module = local.module_of(task, asked)
    weights = local.weights_of(module)
    rows = {client: np.arange(8 * client, 8 * client + 8) for client in range(4)}

    (many,) = Stacked(module, task, asked)(rows, weights, 1, {})
    large = training(batch=32)
    alone = local.train(module, task, np.arange(32), weights, large, client=0, round_=1)

    for name, each in many.changes.items():
        assert weights[name] + each.mean(axis=0) == pytest.approx(alone.weights[name], abs=1e-6)


def swapped(module, net: str = "mlp") -> Task:
    """Digits with another module."""
    task = digits(net)
    return Task(
        name="swapped",
        module=lambda: module,
        inputs=task.inputs,
        labels=task.labels,
        test_inputs=task.test_inputs,
        test_labels=task.test_labels,
    )


class Centred(torch.nn.Module):
    """Takes from each sample the mean of its batch."""

    def forward(self, inputs):
        return inputs - inputs.mean(dim=0)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [(torch.nn.Dropout(0.5), "random"), (Centred(), "act on each other")],
    ids=["dropout", "batch mean"],
)
def test_modules_that_cannot_be_stacked_are_trained_alone_and_said_once(odd, reason):
    task, asked = swapped(torch.nn.Sequential(odd, torch.nn.Linear(64, 10))), training()
    module, said = local.module_of(task, asked), []

    trainer = trainer_of(module, task, asked, said.append)
    list(trainer(UNEQUAL, local.weights_of(module), 1, {}))

    assert isinstance(trainer, OneByOne)
    assert len(said) == 1
    assert reason in said[0]


def test_networks_of_our_own_can_be_stacked():
    for net in ("mlp", "cnn"):
        task = digits(net)
        assert why_not(local.module_of(task, training()), task) is None


def test_convolutions_of_other_kinds_keep_their_gradients():
    # 8 x 8 becomes 4 x 4 by the stride, 3 x 3 by the pool
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False),
        torch.nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2, stride=1),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 3 * 3, 10),
    )
    task = swapped(module, "cnn")

    assert why_not(local.module_of(task, training()), task) is None
