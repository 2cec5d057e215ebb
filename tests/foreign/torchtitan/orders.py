"""More plans than foreign/plans.py has: kinds that torchtitan expresses and few others do."""

from typing import Any, Final

from escala.catalog.clusters import cluster_for
from escala.catalog.networks import network
from escala.foreign.orders import Order
from escala.model.plan import (
    Compile,
    ContextKind,
    Dispatcher,
    Offload,
    Plan,
    Precision,
    Recompute,
    Schedule,
    Split,
)
from escala.planning.defaults import Question, answerable


def order(name: str, plan: Plan, gpu: str = "h100-sxm", **given: Any) -> Order:
    """A plan for a network of the catalog, with the global batch that it makes."""
    question = Question(
        network=network(name),
        cluster=cluster_for(gpu, plan.devices),
        global_batch=plan.dp * plan.micro_batch * plan.micro_batches,
        **{"sequence_tokens": 4096, "engine": "pytorch", **given},
    )
    return Order(
        problem=answerable(question)[0],
        plan=plan,
        digest="0123456789ab",
        model="./assets/hf/model",
        data="c4",
        learning_rate=3e-4,
        steps=1000,
    )


def fsdp(shard: int, **given: Any) -> Plan:
    """Fully sharded data parallelism."""
    return Plan(**{"dp": shard, "zero": 3, "reshard": True, "shard": shard, **given})


MORE: Final[dict[str, Order]] = {
    "gpipe": order("llama-3.1-8b", Plan(dp=2, pp=4, schedule=Schedule.GPIPE, micro_batch=2, micro_batches=8)),
    "1f1b-fsdp-kept": order(
        "llama-3.1-70b",
        fsdp(4, reshard=False, tp=8, sp=True, pp=2, schedule=Schedule.ONE_F_ONE_B, micro_batches=8),
    ),
    "interleaved-balanced": order(
        "llama-3.1-70b",
        fsdp(
            2,
            tp=4,
            sp=True,
            pp=4,
            schedule=Schedule.INTERLEAVED,
            virtual_stages=3,
            split=Split.BALANCED,
            micro_batches=16,
            recompute=Recompute.FULL,
        ),
    ),
    "zero-bubble-custom": order(
        "llama-3.1-8b",
        Plan(
            pp=2,
            schedule=Schedule.ZERO_BUBBLE_V,
            virtual_stages=2,
            split=Split.CUSTOM,
            stage_layers=(7, 9, 9, 7),
            micro_batches=8,
        ),
    ),
    "cp-all-gather": order(
        "llama-3.1-8b",
        fsdp(16, dp=4, cp=4, cp_kind=ContextKind.ALL_GATHER, recompute=Recompute.SELECTIVE),
        sequence_tokens=32768,
    ),
    "ep-fused": order(
        "qwen3-30b-a3b",
        fsdp(16, ep=8, dispatcher=Dispatcher.FUSED, recompute=Recompute.FULL, fused_loss=True),
    ),
    "ep-deepseek": order("deepseek-v3", fsdp(64, ep=64, recompute=Recompute.FULL)),
    "ep-gpt-oss": order("gpt-oss-20b", fsdp(8, ep=8, micro_batches=2)),
    "offload": order(
        "llama-3.1-8b",
        fsdp(8, offload_optimizer=Offload.CPU, offload_params=Offload.CPU, recompute=Recompute.FULL),
        method="full",
    ),
    "fp8-rowwise": order(
        "llama-3.1-8b",
        fsdp(8, precision=Precision.FP8_ROWWISE, compile=Compile.DEFAULT, fused_loss=True),
        precision="fp8-rowwise",
    ),
    "mxfp8": order(
        "llama-3.1-8b",
        fsdp(8, precision=Precision.MXFP8, compile=Compile.DEFAULT, fused_loss=True),
        gpu="b200",
        precision="mxfp8",
    ),
    "nvfp4": order(
        "qwen3-8b",
        fsdp(8, precision=Precision.NVFP4, compile=Compile.DEFAULT, fused_loss=True),
        gpu="b200",
        precision="nvfp4",
    ),
    "fp32": order("qwen3-1.7b", Plan(dp=4, precision=Precision.FP32), precision="fp32"),
    "tp-alone": order("qwen3-14b", Plan(tp=8, micro_batches=4, recompute=Recompute.SELECTIVE)),
}
"""By name."""
