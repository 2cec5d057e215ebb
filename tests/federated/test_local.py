"""Training of one client: plain SGD in the common order, by hand; parts that are trained; refusals."""

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.ranges import exactly
from escala.federated.training import Algorithm, Part, Training
from federated.populations import training

torch = pytest.importorskip("torch")

from escala.federated import local  # noqa: E402
from escala.federated.task import Task, digits  # noqa: E402

pytestmark = pytest.mark.optional


def line(inputs, labels) -> Task:
    """A line through 0 with squared error: the gradient of one sample is 2 x (w x - y)."""
    return Task(
        name="line",
        module=_line,
        inputs=np.array(inputs, np.float32)[:, None],
        labels=np.array(labels, np.int64),
        test_inputs=np.ones((1, 1), np.float32),
        test_labels=np.ones(1, np.int64),
        loss=lambda outputs, labels: (outputs[:, 0] - labels) ** 2,
    )


def _line():
    return torch.nn.Linear(1, 1, bias=False)


def trained_once(task: Task, asked: Training, weight: float, pull=None) -> local.Update:
    module = local.module_of(task, asked)
    weights = {"weight": np.array([[weight]], np.float32)}
    return local.train(module, task, np.arange(len(task)), weights, asked, client=0, round_=1, pull=pull)


def test_the_last_batch_is_the_mean_of_the_samples_it_has():
    # three equal samples x = 1, y = 1, batches of 2 and 1, rate 0.1, from w = 0:
    # w1 = 0 + 0.1 * 2 = 0.2; w2 = 0.2 + 0.1 * 2 * 0.8 = 0.36, whether a batch has 2 samples or 1
    update = trained_once(line([1, 1, 1], [1, 1, 1]), training(batch=2), 0.0)

    assert update.weights["weight"][0, 0] == pytest.approx(0.36, rel=1e-6)
    assert (update.samples, update.steps) == (3, 2)
    # losses when last trained on: 1, 1 and 0.8 ** 2
    assert update.loss == pytest.approx((1 + 1 + 0.64) / 3, rel=1e-6)
    assert update.rms_loss == pytest.approx(((1 + 1 + 0.64**2) / 3) ** 0.5, rel=1e-6)


def test_fedprox_pulls_back_to_the_start():
    # two steps from w = 0 with proximal 1: w1 = 0.2; gradient -1.6 + (0.2 - 0) = -1.4: w2 = 0.34
    asked = training(batch=1, algorithm=Algorithm.FEDPROX, proximal=1.0)

    assert trained_once(line([1, 1], [1, 1]), asked, 0.0).weights["weight"][0, 0] == pytest.approx(0.34)


def test_a_pull_is_added_to_every_gradient():
    # w1 = 0 - 0.1 * (-2 + 0.5) = 0.15; w2 = 0.15 - 0.1 * (-1.7 + 0.5) = 0.27
    pull = {"weight": np.array([[0.5]], np.float32)}

    update = trained_once(line([1, 1], [1, 1]), training(batch=1), 0.0, pull)

    assert update.weights["weight"][0, 0] == pytest.approx(0.27)


@pytest.mark.parametrize(
    ("part", "names"),
    [
        (Part.FULL, 6),
        (Part.LAST_LAYERS, 2),
        (Part.LORA, 6),
    ],
)
def test_only_the_asked_part_is_trained_and_sent(part: Part, names: int):
    asked, task = training(part=part), digits()
    module = local.module_of(task, asked)
    before = {name: each.detach().clone() for name, each in module.named_parameters()}

    update = local.train(module, task, np.arange(64), local.weights_of(module), asked, client=0, round_=1)

    moved = {name for name, each in module.named_parameters() if not torch.equal(each, before[name])}
    assert len(update.weights) == names
    assert moved == update.weights.keys()
    assert part is not Part.LORA or all("lora" in name for name in moved)


def test_dropout_is_the_same_in_every_engine_and_leaves_torchs_seed_alone():
    task = digits()
    asked = training()
    module = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.Dropout(0.5))

    weights = local.weights_of(module)
    state = torch.random.get_rng_state()
    first = local.train(module, task, np.arange(32), weights, asked, client=1, round_=1)
    torch.rand(3)
    again = local.train(module, task, np.arange(32), weights, asked, client=1, round_=1)

    assert all(np.array_equal(first.weights[name], again.weights[name]) for name in weights)
    assert not torch.equal(torch.random.get_rng_state(), state)  # three numbers were drawn
    torch.random.set_rng_state(state)


def test_batch_norm_and_other_modules_weights_are_refused():
    task = digits()
    norm = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10))
    wrong = Task(
        name="norm",
        module=lambda: norm,
        inputs=task.inputs,
        labels=task.labels,
        test_inputs=task.test_inputs,
        test_labels=task.test_labels,
    )

    with pytest.raises(InvalidInput, match="use GroupNorm"):
        local.module_of(wrong, training())
    with pytest.raises(InvalidInput, match="differ in names"):
        local.load(local.module_of(task, training()), {"other": np.zeros(1, np.float32)})


def test_full_batches_of_one_client_are_centralised_sgd():
    task, asked = digits(), training(rounds=exactly(1), batch=10_000, local_epochs=3)
    module = local.module_of(task, asked)
    weights = local.weights_of(module)
    alone = local.module_of(task, asked)
    optimizer = torch.optim.SGD(alone.parameters(), lr=asked.learning_rate)

    update = local.train(module, task, np.arange(len(task)), weights, asked, client=0, round_=1)
    for _ in range(3):
        optimizer.zero_grad()
        outputs = alone(torch.as_tensor(task.inputs))
        torch.nn.functional.cross_entropy(outputs, torch.as_tensor(task.labels)).backward()
        optimizer.step()

    for name, each in alone.named_parameters():
        assert update.weights[name] == pytest.approx(each.detach().numpy(), abs=1e-6)
