"""torch itself: what the rules about training scripts say of it is so."""

import importlib
import inspect
import warnings

import pytest

from escala.foreign.script.superseded import GONE, MOVED
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("default")]
torch = needed("script", "torch")


@pytest.mark.parametrize("name", ["autocast", "GradScaler"])
def test_old_names_of_amp_warn_and_new_ones_take_a_device(name: str) -> None:
    with pytest.warns(FutureWarning, match="is deprecated"):
        getattr(importlib.import_module("torch.cuda.amp"), name)()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        getattr(torch.amp, name)("cpu")


@pytest.mark.parametrize("name", GONE)
def test_modules_that_are_gone_are_gone(name: str) -> None:
    with pytest.raises(ImportError):
        importlib.import_module(name)
    importlib.import_module(GONE[name][1])


@pytest.mark.parametrize("name", MOVED)
def test_private_modules_have_public_places(name: str) -> None:
    importlib.import_module(name)
    importlib.import_module(MOVED[name])


def test_a_sampler_and_shuffle_are_refused() -> None:
    data = list(range(4))
    sampler = torch.utils.data.SequentialSampler(data)

    with pytest.raises(ValueError, match="mutually exclusive"):
        torch.utils.data.DataLoader(data, shuffle=True, sampler=sampler)


def test_the_order_of_arguments_of_a_loader_is_as_it_is_read() -> None:
    names = list(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)[1:]
    assert names[:8] == [
        "dataset",
        "batch_size",
        "shuffle",
        "sampler",
        "batch_sampler",
        "num_workers",
        "collate_fn",
        "pin_memory",
    ]


@pytest.mark.parametrize("name", ["transformer_auto_wrap_policy", "size_based_auto_wrap_policy"])
def test_policies_need_three_arguments_more(name: str) -> None:
    policy = getattr(importlib.import_module("torch.distributed.fsdp.wrap"), name)

    assert list(inspect.signature(policy).parameters)[:3] == ["module", "recurse", "nonwrapped_numel"]


def test_samplers_draw_the_same_order_until_they_are_told_the_epoch() -> None:
    sampler = torch.utils.data.DistributedSampler(list(range(32)), num_replicas=2, rank=0)

    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)

    assert first == again
    assert first != list(sampler)


def test_recomputation_without_a_variant_warns() -> None:
    from torch.utils.checkpoint import checkpoint

    with pytest.warns(UserWarning, match="use_reentrant"):
        checkpoint(torch.relu, torch.ones(2, requires_grad=True))
