"""Pipelines and sequences dealt to ranks, alone and with all other ways, against one process.

All that needs eight ranks stands here, so that eight are started once.
"""

from functools import cache

import pytest

pytest.importorskip("torch")

from escala.model.plan import ContextKind, Precision, Recompute, Schedule, Split
from parallel.oracle import Case, differences, judge, plan

pytestmark = [pytest.mark.optional, pytest.mark.slow]
GPIPE, ONE, INTERLEAVED, ZBV = (
    Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZERO_BUBBLE_V
)  # fmt: skip
RING, GATHER, ULYSSES = ContextKind.RING, ContextKind.ALL_GATHER, ContextKind.ULYSSES
SHARDED = {"dp": 2, "micro_batches": 2, "zero": 3, "shard": 2}
HSDP = {"dp": 4, "zero": 3, "shard": 2}


def piped(schedule, **fields):
    virtual = 2 if schedule in (INTERLEAVED, ZBV) else 1
    return plan(**{"pp": 2, "schedule": schedule, "virtual_stages": virtual, "micro_batches": 4, **fields})


def along(kind, ranks=2, **fields):
    return plan(cp=ranks, cp_kind=kind, **fields)


def case(name, kind, layout, **more):
    return Case(name=name, kind=kind, plan=layout, **more)


PACKED = {"has_documents": True}
IN_16_BIT = {"optimizer": "sgd", "rate": 0.1, "tolerance": 1e-3, "allowed": {"norm": 2**-8}}
TWO = (
    case("gpipe", "llama", piped(GPIPE)),
    case("1f1b", "llama", piped(ONE), **PACKED),
    case("interleaved", "llama", piped(INTERLEAVED)),
    case("zbv", "llama", piped(ZBV), **PACKED),
    case("uneven", "moe", piped(ONE, split=Split.CUSTOM, stage_layers=(1, 3))),
    case("tied-1f1b", "gpt2", piped(ONE)),
    case("tied-zbv", "gpt2", piped(ZBV)),
    case("hf-llama-interleaved", "hf-llama", piped(INTERLEAVED), **PACKED),
    case("hf-gpt2-1f1b", "hf-gpt2", piped(ONE), **PACKED),
    case("hf-gpt2-zbv", "hf-gpt2", piped(ZBV)),
    case("chain-images-1f1b", "chain-images", piped(ONE)),
    case("chain-images-zbv", "chain-images", piped(ZBV)),
    case("chain-tokens-interleaved", "chain-tokens", piped(INTERLEAVED)),
    case("ring", "llama", along(RING)),
    case("gather", "llama", along(GATHER)),
    case("ulysses", "llama", along(ULYSSES)),
    case("ring-documents", "gpt2", along(RING), **PACKED),
    case("gather-documents", "hf-llama", along(GATHER), **PACKED),
    case("ulysses-documents", "hf-gpt2", along(ULYSSES), **PACKED),
    case("ring-hf", "hf-gpt2", along(RING, micro_batches=2)),
    case("gather-fsdp2", "moe", along(GATHER, zero=3, shard=2)),
)
FOUR = (
    case("pp4-gpipe", "llama", piped(GPIPE, pp=4)),
    case("pp4-1f1b", "gpt2", piped(ONE, pp=4)),
    case("pp2-ddp2", "hf-gpt2", piped(ONE, dp=2, micro_batches=2), **PACKED),
    case("pp2-ddp2-zbv", "hf-gpt2", piped(ZBV, dp=2, micro_batches=2)),
    case("pp2-zero1", "llama", piped(INTERLEAVED, dp=2, micro_batches=2, zero=1, shard=2)),
    case("pp2-fsdp2", "gpt2", piped(ONE, **SHARDED)),
    case("pp2-fsdp2-zbv", "gpt2", piped(ZBV, **SHARDED, reshard=True)),
    case("pp2-fsdp2-interleaved", "moe", piped(INTERLEAVED, **SHARDED)),
    case("pp2-fsdp2-chain", "chain-images", piped(INTERLEAVED, **SHARDED)),
    case("pp2-tp2", "llama", piped(ONE, tp=2)),
    case("pp2-tp2-sp", "gpt2", piped(ZBV, tp=2, sp=True), **PACKED),
    case("pp2-tp2-sp-hf", "hf-llama", piped(INTERLEAVED, tp=2, sp=True)),
    case("pp2-tp2-sp-hf-gpt2", "hf-gpt2", piped(ONE, tp=2, sp=True), **PACKED),
    case("pp2-ep2", "moe", piped(ONE, dp=2, ep=2, micro_batches=2)),
    case("pp2-ring2", "llama", piped(ZBV, cp=2, cp_kind=RING), **PACKED),
    case("pp2-fsdp2-bf16", "llama", piped(ONE, **SHARDED, precision=Precision.BF16), **IN_16_BIT),
    case("pp2-ddp2-recompute", "llama", piped(ZBV, dp=2, micro_batches=2, recompute=Recompute.FULL)),
    case("ring4", "llama", along(RING, 4)),
    case("gather4", "hf-llama", along(GATHER, 4), **PACKED),
    case("ulysses4", "hf-llama", along(ULYSSES, 4), **PACKED),
    case("ring4-documents", "hf-llama", along(RING, 4), **PACKED),
    case("ring-tp-sp", "llama", along(RING, tp=2, sp=True)),
    case("ulysses-tp-sp", "hf-gpt2", along(ULYSSES, tp=2, sp=True)),
    case("gather-tp", "gpt2", along(GATHER, tp=2), **PACKED),
    case("ring-fsdp2", "gpt2", along(RING, dp=2, zero=3, shard=4, reshard=True)),
    case("gather-ddp", "moe", along(GATHER, dp=2), **PACKED),
)
EIGHT = (
    case("pp2-fsdp2-tp2-sp", "llama", piped(INTERLEAVED, **SHARDED, tp=2, sp=True)),
    case("pp2-fsdp2-tp2-sp-zbv", "hf-gpt2", piped(ZBV, **SHARDED, tp=2, sp=True)),
    case("pp2-cp2-ddp2", "hf-gpt2", piped(ONE, dp=2, micro_batches=2, cp=2, cp_kind=GATHER), **PACKED),
    case("pp2-cp2-fsdp2", "llama", piped(ZBV, dp=2, micro_batches=2, cp=2, zero=3, shard=4)),
    case("pp2-ep2-tp2-dp2", "moe", piped(ONE, dp=2, micro_batches=2, ep=2, tp=2, sp=True)),
    case("pp2-ep2-fsdp4", "moe", piped(INTERLEAVED, dp=4, micro_batches=2, ep=2, zero=3, shard=4)),
    case("hsdp-tp2-sp", "llama", plan(**HSDP, tp=2, sp=True), steps=3, **PACKED),
    case("fsdp4-ep2-etp2", "moe", plan(dp=4, zero=3, shard=4, tp=2, sp=True, ep=2, etp=2), steps=3),
)
CASES = {2: TWO, 4: FOUR, 8: EIGHT}
ALL = [(ranks, each) for ranks, cases in CASES.items() for each in cases]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """What a job on so many ranks found; each is run once."""
    return cache(lambda ranks: differences(CASES[ranks], ranks, tmp_path_factory.mktemp("job"), 400))


@pytest.mark.parametrize(("ranks", "asked"), ALL, ids=[f"{ranks}-{each.name}" for ranks, each in ALL])
def test_ranks_train_like_one_process(jobs, ranks, asked):
    judge(jobs(ranks)[asked.name], asked)
