"""What a function may return, and one step of it; run by `make test-hf`."""

import re
from types import SimpleNamespace

import pytest

from escala.errors import InvalidInput

pytestmark = pytest.mark.optional
torch = pytest.importorskip("torch", reason="a job is PyTorch's")


def squared(model, batch):
    return model(batch).pow(2).mean()


def parts(loss=squared):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.5), [torch.ones(4, 3)], loss


@pytest.mark.parametrize("kind", ["tuple", "mapping", "attributes"])
def test_four_parts_may_come_as_tuple_mapping_or_attributes(kind: str):
    from escala.measurement.job.job import PARTS, Training, job_of

    named = dict(zip(PARTS, parts(), strict=True))
    returned = {"tuple": tuple(named.values()), "mapping": named, "attributes": SimpleNamespace(**named)}[
        kind
    ]

    assert isinstance(job_of(returned, "train:make"), Training)


def test_a_function_alone_is_a_whole_step():
    from escala.measurement.job.job import Runner, Whole, job_of

    ran = []
    job = job_of(lambda: ran.append(1), "train:make")
    Runner(job, "it").step()

    assert isinstance(job, Whole)
    assert ran == [1]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda made: None, "returned nothing; return (model, optimizer, batches, loss)"),
        (lambda made: made[0], "returned a model alone"),
        (lambda made: made[:3], "returned 3 values"),
        (lambda made: (made[1], *made[1:]), "returned SGD as model; model has to be a torch.nn.Module"),
        (lambda made: (*made[:2], 5, made[3]), "returned int as batches"),
        (lambda made: (*made[:3], "mse"), "returned str as loss; loss has to be a function"),
    ],
)
def test_anything_else_is_refused(spoil, said: str):
    from escala.measurement.job.job import job_of

    with pytest.raises(InvalidInput, match=re.escape(said)):
        job_of(spoil(parts()), "train:make")


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda model, batch: model(batch), "returned a tensor of (4, 1); it has to be"),
        (lambda model, batch: 3.0, "returned float"),
        (lambda model, batch: batch.mean(), "one number that depends on the model"),
    ],
)
def test_a_loss_that_is_no_number_of_the_model_is_refused(loss, said: str):
    from escala.measurement.job.job import job_of, running

    with (
        running(job_of(parts(loss), "it"), "it") as runner,
        pytest.raises(InvalidInput, match=re.escape(said)),
    ):
        runner.step()


def test_micro_batches_make_the_same_step_as_the_whole_batch():
    from dataclasses import replace

    from escala.measurement.job.job import job_of, train

    batch = torch.arange(12.0).reshape(4, 3)
    whole, halves = job_of(parts(), "it"), job_of(parts(), "it")

    first, second = train(whole, batch), train(replace(halves, micro_batches=2), batch)

    # mean of the halves' means: the same loss, the same gradient, the same weights after the step
    assert float(second) == pytest.approx(float(first), rel=1e-6)
    assert torch.allclose(whole.model.weight, halves.model.weight, rtol=1e-6)


def test_flop_of_attention_are_counted_on_processors_too():
    from escala.measurement.job.flop import counted_flop
    from escala.measurement.job.job import Runner, Whole

    heads = [torch.randn(2, 4, 8, 16, requires_grad=True) for _ in range(3)]

    def step() -> None:
        torch.nn.functional.scaled_dot_product_attention(*heads).sum().backward()

    # one product of scores: 2 * (2 * 4) * 8 * 8 * 16 FLOP; two in forward, five in backward (scores again)
    product = 2 * 8 * 8 * 8 * 16
    assert counted_flop(Runner(Whole(step=step), "it")) == 7 * product
