"""Data parallelism in every form, recompute, offload and number formats against one process."""

import pytest

pytest.importorskip("torch")

from escala.model.plan import Offload, Precision, Recompute
from escala.parallel.compression import Compression
from parallel.oracle import Case, differences, judge, plan

pytestmark = [pytest.mark.optional, pytest.mark.slow]
SHARDED = {"dp": 2, "zero": 3, "shard": 2, "reshard": True}
SGD = {"optimizer": "sgd", "rate": 0.1}
IN_16_BIT = {**SGD, "tolerance": 1e-3, "allowed": {"norm": 2**-8}}
"""Of losses and weights 1e-3, of the gradient's norm one rounding to bf16; not with AdamW, which divides a
gradient by its own size and makes a step of every rounding."""
ON_TWO = (
    Case(name="ddp", kind="llama", plan=plan(dp=2)),
    Case(name="ddp-accumulated", kind="gpt2", plan=plan(dp=2, micro_batches=2), has_documents=True),
    Case(name="ddp-sgd", kind="hf-llama", plan=plan(dp=2), clip_norm=None, **SGD, has_documents=True),
    Case(name="ddp-resnet", kind="hf-resnet", plan=plan(dp=2, micro_batches=2)),
    Case(name="ddp-vit", kind="hf-vit", plan=plan(dp=2)),
    Case(name="zero1", kind="llama", plan=plan(dp=2, zero=1, shard=2)),
    Case(name="zero1-accumulated", kind="hf-gpt2", plan=plan(dp=2, zero=1, shard=2, micro_batches=2)),
    Case(name="zero2", kind="llama", plan=plan(dp=2, zero=2, shard=2)),
    Case(name="zero3", kind="hf-llama", plan=plan(**SHARDED), has_documents=True),
    Case(name="zero3-accumulated", kind="gpt2", plan=plan(**SHARDED, micro_batches=4)),
    Case(name="zero3-sgd", kind="hf-gpt2", plan=plan(**SHARDED), clip_norm=None, **SGD),
    Case(name="zero3-gathered-once", kind="moe", plan=plan(dp=2, zero=3, shard=2, micro_batches=2)),
    Case(name="zero3-resnet", kind="hf-resnet", plan=plan(**SHARDED, micro_batches=2)),
    Case(name="zero3-vit", kind="hf-vit", plan=plan(**SHARDED)),
    Case(
        name="zero3-offloaded",
        kind="llama",
        plan=plan(**SHARDED, micro_batches=2, offload_params=Offload.CPU, offload_optimizer=Offload.CPU),
    ),
    Case(name="recompute-full", kind="llama", plan=plan(**SHARDED, recompute=Recompute.FULL)),
    Case(name="recompute-selective", kind="moe", plan=plan(**SHARDED, recompute=Recompute.SELECTIVE)),
    Case(name="recompute-selective-hf", kind="hf-gpt2", plan=plan(dp=2, recompute=Recompute.SELECTIVE)),
    Case(
        name="recompute-first",
        kind="hf-llama",
        plan=plan(dp=2, recompute=Recompute.FIRST_LAYERS, recompute_layers=2),
    ),
    Case(name="activations-offloaded", kind="gpt2", plan=plan(**SHARDED, offload_activations=Offload.CPU)),
    Case(name="ddp-bf16", kind="llama", plan=plan(dp=2, precision=Precision.BF16), **IN_16_BIT),
    Case(
        name="zero3-bf16",
        kind="hf-llama",
        plan=plan(**SHARDED, precision=Precision.BF16),
        **IN_16_BIT,
    ),
    Case(name="ddp-fp16", kind="llama", plan=plan(dp=2, precision=Precision.FP16), **IN_16_BIT),
    Case(name="zero3-fp16", kind="gpt2", plan=plan(**SHARDED, precision=Precision.FP16), **IN_16_BIT),
    Case(
        name="compressed-powersgd",  # from the eleventh step on; its gradient is another one, by design
        kind="llama",
        plan=plan(dp=2),
        steps=14,
        choices={"compression": Compression.POWER_SGD},
        **SGD,
        allowed={"loss": 1e-2, "norm": float("inf"), "weights": float("inf")},
    ),
    Case(name="ddp-parts", kind="llama", plan=plan(dp=2, micro_batches=2), watches_parts=True),
    Case(name="zero3-parts", kind="gpt2", plan=plan(**SHARDED, micro_batches=2), watches_parts=True),
    Case(
        name="compressed-bf16",
        kind="llama",
        plan=plan(dp=2),
        choices={"compression": Compression.BF16},
        **IN_16_BIT,
    ),
    Case(
        name="compressed-fp16",
        kind="llama",
        plan=plan(dp=2),
        choices={"compression": Compression.FP16},
        **IN_16_BIT,
    ),
)
ON_FOUR = (
    Case(name="hsdp", kind="llama", plan=plan(dp=4, zero=3, reshard=True, shard=2)),
    Case(
        name="hsdp-accumulated",
        kind="hf-gpt2",
        plan=plan(dp=4, zero=3, reshard=True, shard=2, micro_batches=2),
    ),
    Case(name="zero1-in-groups", kind="llama", plan=plan(dp=4, zero=1, shard=2)),
    Case(name="ddp-tensor", kind="llama", plan=plan(dp=2, tp=2, micro_batches=2)),
    Case(name="zero3-tensor", kind="hf-llama", plan=plan(**SHARDED, tp=2, sp=True, micro_batches=2)),
    Case(name="ddp-experts", kind="moe", plan=plan(dp=4, ep=2)),
    Case(name="zero3-experts", kind="moe", plan=plan(dp=4, zero=3, shard=4, reshard=True, ep=2)),
    Case(name="zero3-experts-on-all", kind="hf-mixtral", plan=plan(dp=4, zero=3, shard=4, ep=4)),
    Case(name="zero3-on-four", kind="hf-llama", plan=plan(dp=4, zero=3, reshard=True, shard=4)),
)
WRONG = Case(name="wrong", kind="llama", plan=plan(dp=2), is_wrong=True)


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory):
    return differences((*ON_TWO, WRONG), 2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def on_four_ranks(tmp_path_factory):
    return differences(ON_FOUR, 4, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize("case", ON_TWO, ids=lambda case: case.name)
def test_training_on_two_ranks_equals_one_process(on_two_ranks, case):
    judge(on_two_ranks[case.name], case)


@pytest.mark.parametrize("case", ON_FOUR, ids=lambda case: case.name)
def test_training_on_four_ranks_equals_one_process(on_four_ranks, case):
    judge(on_four_ranks[case.name], case)


def test_the_oracle_sees_ranks_that_learn_from_the_same_samples(on_two_ranks):
    with pytest.raises(AssertionError, match="loss differs"):
        judge(on_two_ranks["wrong"], WRONG)
