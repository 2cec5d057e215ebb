"""Plans of different kinds as orders, for every writer: what each target writes or refuses."""

from typing import Any, Final

from escala.catalog.clusters import cluster_for
from escala.catalog.networks import network
from escala.foreign.orders import Order
from escala.model.plan import Compile, Offload, Plan, Precision, Recompute, Schedule
from escala.planning.defaults import Question, answerable

SMALL: Final = ("llama-3.2-1b", "meta-llama/Llama-3.2-1B")
MIDDLE: Final = ("llama-3.1-8b", "meta-llama/Llama-3.1-8B")
LARGE: Final = ("llama-3.1-70b", "meta-llama/Llama-3.1-70B")
EXPERTS: Final = ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1")


def _order(model: tuple[str, str], plan: Plan, *, gpu: str = "h100-sxm", **given: Any) -> Order:
    """A plan on so many devices as it takes, with the global batch that it makes."""
    question = Question(
        network=network(model[0]),
        cluster=cluster_for(gpu, plan.devices),
        global_batch=plan.dp * plan.micro_batch * plan.micro_batches,
        **{"sequence_tokens": 4096, "engine": "pytorch", **given},
    )
    return Order(
        problem=answerable(question)[0],
        plan=plan,
        digest="0123456789ab",
        model=model[1],
        data="allenai/c4",
        learning_rate=3e-4,
        steps=1000,
    )


def _fsdp(shard: int, **given: Any) -> Plan:
    return Plan(**{"dp": shard, "zero": 3, "reshard": True, "shard": shard, **given})


ORDERS: Final[dict[str, Order]] = {
    "single-device": _order(
        SMALL, Plan(micro_batch=4, micro_batches=8, compile=Compile.DEFAULT), sequence_tokens=2048
    ),
    "ddp": _order(SMALL, Plan(dp=8, micro_batch=2, micro_batches=4), method="full"),
    "zero-1": _order(
        SMALL, Plan(dp=8, zero=1, shard=8, micro_batch=4, micro_batches=2), engine="megatron-core"
    ),
    "zero-2-accumulating": _order(
        MIDDLE,
        Plan(dp=8, zero=2, shard=8, micro_batch=1, micro_batches=16, recompute=Recompute.FULL),
        engine="deepspeed",
        method="full",
    ),
    "fsdp": _order(MIDDLE, _fsdp(8, micro_batch=2, recompute=Recompute.FULL, compile=Compile.DEFAULT)),
    "hsdp": _order(
        MIDDLE, _fsdp(8, dp=16, micro_batch=2, micro_batches=2, recompute=Recompute.FULL), method="full"
    ),
    "fsdp-tp-sp": _order(
        LARGE,
        _fsdp(8, tp=8, sp=True, micro_batch=1, recompute=Recompute.FULL, compile=Compile.DEFAULT),
        sequence_tokens=8192,
    ),
    "tp-pp-1f1b": _order(
        LARGE,
        Plan(
            dp=2,
            zero=1,
            shard=2,
            tp=8,
            sp=True,
            pp=4,
            schedule=Schedule.ONE_F_ONE_B,
            micro_batch=1,
            micro_batches=16,
            recompute=Recompute.FULL,
        ),
        engine="megatron-core",
    ),
    "tp-pp-interleaved": _order(
        LARGE,
        Plan(
            dp=4,
            zero=1,
            shard=4,
            tp=4,
            sp=True,
            pp=4,
            schedule=Schedule.INTERLEAVED,
            virtual_stages=5,
            micro_batch=1,
            micro_batches=16,
            recompute=Recompute.SELECTIVE,
        ),
        engine="megatron-core",
    ),
    "fsdp-cp-ring": _order(
        MIDDLE, _fsdp(16, dp=4, cp=4, micro_batch=1, recompute=Recompute.FULL), sequence_tokens=32768
    ),
    "fsdp-ep": _order(EXPERTS, _fsdp(32, ep=8, micro_batch=1, recompute=Recompute.FULL)),
    "lora": _order(
        MIDDLE,
        Plan(dp=4, micro_batch=2, micro_batches=4, recompute=Recompute.FULL),
        gpu="a100-sxm-80gb",
        sequence_tokens=2048,
        method="lora",
        lora_rank=16,
    ),
    "qlora": _order(
        MIDDLE,
        Plan(dp=2, micro_batch=1, micro_batches=16, recompute=Recompute.FULL),
        gpu="a100-pcie-40gb",
        sequence_tokens=2048,
        method="qlora",
        lora_rank=32,
    ),
    "zero-3-offload": _order(
        MIDDLE,
        _fsdp(4, micro_batch=1, micro_batches=4, recompute=Recompute.FULL, offload_optimizer=Offload.CPU),
        engine="deepspeed",
        method="full",
    ),
    "fsdp-fp8": _order(
        MIDDLE,
        _fsdp(8, precision=Precision.FP8_TENSORWISE, compile=Compile.DEFAULT),
        precision="fp8",
        sequence_tokens=8192,
    ),
}
"""By name. All run on their clusters, as far as is predicted: offload is not."""
