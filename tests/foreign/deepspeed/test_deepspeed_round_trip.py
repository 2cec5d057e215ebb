"""Plans written for DeepSpeed and read again."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.foreign.deepspeed import writing
from escala.foreign.orders import Order, lacking
from escala.model.plan import Compile, ContextKind, Offload, Precision
from foreign.plans import ORDERS
from foreign.round import assert_round_trip, assert_written_or_refused


def changed(name: str, **given: object) -> Order:
    """One of the plans with other choices."""
    return replace(ORDERS[name], plan=replace(ORDERS[name].plan, **given))  # type: ignore[arg-type]


WRITTEN = {
    "single-device": ORDERS["single-device"],
    "ddp": ORDERS["ddp"],
    "zero-1": ORDERS["zero-1"],
    "zero-2": ORDERS["zero-2-accumulating"],
    "zero-3": ORDERS["fsdp"],
    "zero-3-offload": ORDERS["zero-3-offload"],
    "weights-too": changed("zero-3-offload", offload_params=Offload.CPU),
    "nvme": changed("zero-3-offload", offload_optimizer=Offload.NVME, offload_params=Offload.NVME),
    "tensor": changed("zero-1", dp=4, tp=2, shard=4),
    "tensor-zero-3": changed("fsdp", dp=4, tp=2, shard=4),
    "ulysses": changed("fsdp-cp-ring", cp_kind=ContextKind.ULYSSES),
    "nodes": changed("hsdp", shard=16),
    "fp16": changed("zero-1", precision=Precision.FP16),
    "fp32": changed("ddp", precision=Precision.FP32, compile=Compile.MAX_AUTOTUNE, fused_loss=True),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_says_the_plan_again(name: str, tmp_path: Path) -> None:
    assert lacking(writing.TARGET, WRITTEN[name]) == []
    assert_round_trip(writing, WRITTEN[name], tmp_path)


@pytest.mark.parametrize("name", ORDERS)
def test_every_plan_is_written_or_refused_with_reasons(name: str, tmp_path: Path) -> None:
    assert_written_or_refused(writing, ORDERS[name], tmp_path)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (changed("zero-1", dp=2, tp=2, cp=2, cp_kind=ContextKind.ULYSSES, shard=4), "AutoTP and Ulysses"),
        (changed("zero-1", offload_params=Offload.CPU), "below ZeRO stage 3"),
        (changed("ddp", offload_optimizer=Offload.CPU), "below ZeRO stage 1"),
        (ORDERS["hsdp"], "HSDP"),
    ],
)
def test_what_cannot_be_said_is_refused(order: Order, reason: str) -> None:
    assert any(reason in each for each in lacking(writing.TARGET, order))
