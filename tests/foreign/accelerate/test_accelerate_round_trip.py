"""Plans written for Accelerate and read again."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.foreign.accelerate import writing, writing_deepspeed, writing_megatron
from escala.foreign.orders import Order, Writer, lacking
from escala.model.plan import Compile, ContextKind, Dispatcher, Offload, Precision, Recompute
from escala.model.workload import Method
from foreign.plans import ORDERS
from foreign.round import assert_round_trip, assert_written_or_refused


def changed(name: str, **given: object) -> Order:
    """One of the plans with other choices."""
    return replace(ORDERS[name], plan=replace(ORDERS[name].plan, **given))  # type: ignore[arg-type]


def pretraining(order: Order) -> Order:
    """The same plan for new weights."""
    workload = replace(order.problem.workload, method=Method.PRETRAIN)
    return replace(order, problem=replace(order.problem, workload=workload))


FSDP2 = {
    "single-device": ORDERS["single-device"],
    "ddp": ORDERS["ddp"],
    "ddp-fp32": changed("ddp", precision=Precision.FP32),
    "fsdp": ORDERS["fsdp"],
    "no-reshard": changed("fsdp", reshard=False),
    "hsdp": ORDERS["hsdp"],
    "ring": ORDERS["fsdp-cp-ring"],
    "all-gather": changed("fsdp-cp-ring", cp_kind=ContextKind.ALL_GATHER),
    "hsdp-cp": changed("fsdp-cp-ring", dp=8, shard=16),
    "fp8": ORDERS["fsdp-fp8"],
    "offload": changed("fsdp", offload_optimizer=Offload.CPU, offload_params=Offload.CPU),
    "offload-activations": changed("fsdp", offload_activations=Offload.CPU),
    "fused-loss": changed("fsdp", fused_loss=True, compile=Compile.MAX_AUTOTUNE),
    "fp16": changed("fsdp", precision=Precision.FP16, recompute=Recompute.NONE),
}
DEEPSPEED = {
    "zero-1": ORDERS["zero-1"],
    "zero-2": ORDERS["zero-2-accumulating"],
    "zero-3-offload": ORDERS["zero-3-offload"],
    "ddp": ORDERS["ddp"],
    "zero-3": ORDERS["fsdp"],
    "zero-3-fp16": changed("fsdp", precision=Precision.FP16),
    "nvme": changed("zero-3-offload", offload_optimizer=Offload.NVME, offload_params=Offload.NVME),
    "weights-too": changed("zero-3-offload", offload_params=Offload.CPU),
    "ulysses": changed("fsdp-cp-ring", cp_kind=ContextKind.ULYSSES),
    "single-device": ORDERS["single-device"],
    "nodes": changed("hsdp", shard=16),
    "fp32": changed("zero-1", precision=Precision.FP32),
}
MEGATRON = {
    "pipeline": ORDERS["tp-pp-1f1b"],
    "ddp": pretraining(changed("ddp", recompute=Recompute.FULL)),
    "zero-1": changed("zero-1", recompute=Recompute.FULL),
    "no-recompute": ORDERS["zero-1"],
    "pipeline-no-recompute": changed("tp-pp-1f1b", recompute=Recompute.NONE),
    "first-layers": changed("zero-1", recompute=Recompute.FIRST_LAYERS, recompute_layers=4),
    "offload": changed("zero-1", recompute=Recompute.FULL, offload_optimizer=Offload.CPU),
    "ring": changed("fsdp-cp-ring", zero=1, reshard=False),
    "tensor-sp": changed("fsdp-tp-sp", zero=1, reshard=False, compile=Compile.OFF),
    "tensor": changed("fsdp-tp-sp", zero=0, shard=1, reshard=False, sp=False, compile=Compile.OFF),
    "experts": changed("fsdp-ep", zero=1, reshard=False, dispatcher=Dispatcher.ALL_GATHER),
    "experts-tensor": changed(
        "fsdp-ep",
        dp=16,
        zero=1,
        shard=16,
        tp=2,
        sp=True,
        etp=2,
        reshard=False,
        dispatcher=Dispatcher.ALL_GATHER,
    ),
    "pipeline-ring": changed("tp-pp-1f1b", dp=1, shard=1, zero=0, cp=2, cp_kind=ContextKind.RING),
    "fp16": changed("tp-pp-1f1b", precision=Precision.FP16),
}
WRITTEN = [
    *((writing, name, order) for name, order in FSDP2.items()),
    *((writing_deepspeed, name, order) for name, order in DEEPSPEED.items()),
    *((writing_megatron, name, order) for name, order in MEGATRON.items()),
]


@pytest.mark.parametrize(
    ("writer", "name", "order"), WRITTEN, ids=[f"{each[0].TARGET.name}-{each[1]}" for each in WRITTEN]
)
def test_what_is_written_says_the_plan_again(writer: Writer, name: str, order: Order, tmp_path: Path) -> None:
    assert lacking(writer.TARGET, order) == []
    assert_round_trip(writer, order, tmp_path)


@pytest.mark.parametrize("writer", [writing, writing_deepspeed, writing_megatron])
@pytest.mark.parametrize("name", ORDERS)
def test_every_plan_is_written_or_refused_with_reasons(writer: Writer, name: str, tmp_path: Path) -> None:
    assert_written_or_refused(writer, ORDERS[name], tmp_path)


@pytest.mark.parametrize(
    ("writer", "order", "reason"),
    [
        (writing, changed("fsdp", offload_params=Offload.CPU), "FSDP2 offloads both"),
        (writing, changed("hsdp", shard=6, cp=4, dp=6), "dp_shard × cp"),
        (writing, replace(ORDERS["fsdp"], model="someone/own-model"), "is not known"),
        (writing, changed("ddp", offload_optimizer=Offload.CPU), "offload without sharding"),
        (writing, changed("fsdp", recompute=Recompute.NONE, offload_activations=Offload.CPU), "activations"),
        (writing_deepspeed, changed("zero-1", offload_params=Offload.CPU), "below ZeRO stage 3"),
        (writing_megatron, changed("tp-pp-1f1b", recompute=Recompute.SELECTIVE), "recompute selective"),
    ],
)
def test_what_cannot_be_said_is_refused(writer: Writer, order: Order, reason: str) -> None:
    assert any(reason in each for each in lacking(writer.TARGET, order))
