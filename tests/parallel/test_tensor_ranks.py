"""Tensor, sequence and expert ranks against one process: losses, norms and weights after some steps.

What needs eight ranks stands in test_composed.py, so that eight are started once.
"""

import pytest

pytest.importorskip("torch")

from escala.model.plan import Dispatcher, Plan
from parallel.oracle import Case, differences, judge, plan

pytestmark = [pytest.mark.optional, pytest.mark.slow]
GATHERED = Dispatcher.ALL_GATHER
FSDP = {"dp": 2, "zero": 3, "shard": 2}


def cases(plans: dict[str, tuple[str, Plan]]) -> tuple[Case, ...]:
    """Every second case has several documents a row."""
    return tuple(
        Case(name=name, kind=kind, plan=each, steps=3, has_documents=place % 2 == 0)
        for place, (name, (kind, each)) in enumerate(plans.items())
    )


TWO = cases(
    {
        "tp": ("llama", plan(tp=2)),
        "tp-learned-positions-tied": ("gpt2", plan(tp=2)),
        "tp-qk-norm": ("qk-norm", plan(tp=2)),
        "tp-hf-gpt2": ("hf-gpt2", plan(tp=2)),
        "tp-hf-mixtral": ("hf-mixtral", plan(tp=2)),
        "sp": ("llama", plan(tp=2, sp=True)),
        "sp-learned-positions-tied": ("gpt2", plan(tp=2, sp=True, micro_batches=2)),
        "sp-qk-norm": ("qk-norm", plan(tp=2, sp=True)),
        "sp-hf-llama": ("hf-llama", plan(tp=2, sp=True)),
        "sp-hf-gpt2": ("hf-gpt2", plan(tp=2, sp=True)),
        "sp-hf-qwen3": ("hf-qwen3", plan(tp=2, sp=True)),
        "sp-hf-gemma2": ("hf-gemma2", plan(tp=2, sp=True)),
        "sp-hf-gemma3": ("hf-gemma3", plan(tp=2, sp=True)),
        "sp-hf-qwen2-moe": ("hf-qwen2-moe", plan(tp=2, sp=True)),
        "etp": ("moe", plan(tp=2, etp=2)),
        "etp-sp": ("hf-mixtral", plan(tp=2, sp=True, etp=2)),
        "ep-sp": ("moe", plan(tp=2, sp=True, ep=2)),
        "ep": ("hf-qwen3-moe", plan(dp=2, ep=2)),
        "ep-fsdp-accumulated": ("hf-mixtral", plan(**FSDP, ep=2, micro_batches=2)),
    }
)
FOUR = cases(
    {
        "tp4": ("hf-gpt2", plan(tp=4)),
        "tp4-sp": ("gpt2", plan(tp=4, sp=True)),
        "ddp-tp": ("llama", plan(dp=2, tp=2, micro_batches=2)),
        "fsdp-tp": ("hf-gpt2-odd", plan(**FSDP, tp=2, micro_batches=2)),
        "fsdp-sp": ("qk-norm", plan(**FSDP, reshard=True, tp=2, sp=True)),
        "ep4": ("moe", plan(dp=4, ep=4)),
        "ep4-nothing-arrives": ("moe-lopsided", plan(dp=4, zero=3, shard=4, ep=4)),
        "ep4-gathered": ("hf-mixtral", plan(dp=4, ep=4, dispatcher=GATHERED)),
        "ep-fsdp": ("moe", plan(dp=4, zero=3, shard=4, ep=2, reshard=True)),
        "ep-ddp": ("hf-qwen2-moe", plan(dp=4, ep=2)),
        "ep-sp-fsdp": ("hf-qwen3-moe", plan(**FSDP, tp=2, sp=True, ep=2)),
        "ep4-sp-fsdp": ("moe", plan(**FSDP, tp=2, sp=True, ep=4)),
        "ep-etp": ("moe", plan(**FSDP, tp=2, ep=2, etp=2)),
        "ep-etp-sp": ("hf-mixtral", plan(**FSDP, tp=2, sp=True, ep=2, etp=2)),
    }
)


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory):
    return differences(TWO, 2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def on_four_ranks(tmp_path_factory):
    return differences(FOUR, 4, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize("case", TWO, ids=lambda case: case.name)
def test_two_ranks_that_share_tensors_equal_one_process(on_two_ranks, case):
    judge(on_two_ranks[case.name], case)


@pytest.mark.parametrize("case", FOUR, ids=lambda case: case.name)
def test_four_ranks_that_share_tensors_and_states_equal_one_process(on_four_ranks, case):
    judge(on_four_ranks[case.name], case)
