"""Plans as Megatron's scripts: written and read again they are the same; what cannot be is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.foreign.megatron import writing
from escala.foreign.orders import Order, lacking
from escala.model.plan import ContextKind, Dispatcher, Offload, Plan, Precision, Recompute
from foreign.plans import ORDERS
from foreign.round import assert_round_trip, assert_written_or_refused

WRITTEN = {
    "ddp",
    "zero-1",
    "zero-2-accumulating",
    "hsdp",
    "tp-pp-1f1b",
    "tp-pp-interleaved",
    "fsdp-cp-ring",
    "fsdp-ep",
}


def changed(name: str, **given: object) -> Order:
    return replace(ORDERS[name], plan=replace(ORDERS[name].plan, **given))  # type: ignore[arg-type]


OTHERS = {
    "first layers of each stage": changed(
        "tp-pp-interleaved", recompute=Recompute.FIRST_LAYERS, recompute_layers=10
    ),
    "Ulysses": changed("fsdp-cp-ring", cp_kind=ContextKind.ULYSSES),
    "fp8 by blocks": changed("zero-1", precision=Precision.FP8_BLOCKWISE),
    "mxfp8": changed("zero-1", precision=Precision.MXFP8),
    "nvfp4": changed("zero-1", precision=Precision.NVFP4),
    "fp16": changed("zero-1", precision=Precision.FP16),
    "offloaded optimizer": changed("zero-1", offload_optimizer=Offload.CPU),
    "experts by DeepEP": changed("fsdp-ep", dispatcher=Dispatcher.FUSED),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_plan_comes_back_or_is_refused(name: str, tmp_path: Path) -> None:
    assert assert_written_or_refused(writing, ORDERS[name], tmp_path) == (name in WRITTEN)


@pytest.mark.parametrize("name", OTHERS)
def test_what_no_other_tool_has_comes_back(name: str, tmp_path: Path) -> None:
    assert_round_trip(writing, OTHERS[name], tmp_path)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (changed("tp-pp-1f1b", zero=3, reshard=True), "ZeRO stage 3 (Megatron-FSDP) with a pipeline"),
        (
            changed("tp-pp-interleaved", virtual_stages=3),
            "80 layers over 4 × 3 stages: they have to be equal",
        ),
        (
            changed("tp-pp-interleaved", recompute=Recompute.FIRST_LAYERS, recompute_layers=3),
            "recompute of 3 layers: a multiple of the virtual stages is needed",
        ),
        (
            changed("zero-3-offload"),
            "ZeRO stage 3 (Megatron-FSDP) with an offloaded optimizer",
        ),
        (
            replace(changed("zero-1"), plan=Plan(zero=3, shard=1, reshard=True)),
            "ZeRO stage 3 on a single data parallel rank",
        ),
    ],
)
def test_combinations_beyond_megatron_say_why(order: Order, reason: str) -> None:
    assert reason in lacking(writing.TARGET, order)
