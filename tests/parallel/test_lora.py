"""Adapters around frozen weights, in four bits or not, against one process."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft", reason="peft is not installed (extra lora)")
pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed (extra lora)")

from parallel.oracle import Case, differences, judge, plan

pytestmark = [pytest.mark.optional, pytest.mark.slow]
SHARDED = {"dp": 2, "zero": 3, "shard": 2, "reshard": True}
CASES = (
    Case(name="lora-ddp", kind="lora-llama", plan=plan(dp=2, micro_batches=2)),
    Case(name="lora-ddp-gpt2", kind="lora-hf-gpt2", plan=plan(dp=2)),
    Case(name="lora-zero1-experts", kind="lora-moe", plan=plan(dp=2, zero=1, shard=2)),
    Case(name="lora-zero3", kind="lora-llama", plan=plan(**SHARDED)),
    Case(name="lora-zero3-gpt2", kind="lora-hf-gpt2", plan=plan(**SHARDED, micro_batches=2)),
    Case(name="qlora-ddp", kind="qlora-llama", plan=plan(dp=2)),
    Case(name="qlora-zero3", kind="qlora-llama", plan=plan(**SHARDED)),
    Case(name="qlora-zero3-hf", kind="qlora-hf-llama", plan=plan(**SHARDED)),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return differences(CASES, 2, tmp_path_factory.mktemp("lora"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_adapters_trained_on_two_ranks_equal_those_of_one_process(found, case):
    judge(found[case.name], case)
