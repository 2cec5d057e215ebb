"""Rows that cannot be read are skipped for a reason that is told; blanks follow the software of the row."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from escala.calibration import Reading, Row, Skip, read
from escala.calibration.remedies import WRITE, told
from escala.model.parameters import network_parameters

GPT = Row(
    id="gpt",
    source="Some report",
    framework="torchtitan",
    model="Llama 2 7B",
    arch="dense_transformer",
    layers=32,
    hidden=4096,
    heads=32,
    sequence_tokens=4096,
    vocab=32000,
    accelerator="H100-SXM-80GB",
    accelerator_gb=80.0,
    devices=8,
    dp=8,
    micro_batch=1,
    global_batch=8,
    precision="bf16",
    step_s=1.0,
)
SKIPPED: dict[str, Row] = {
    "network of another kind (diffusion, encoder-decoder, hybrid)": replace(GPT, arch="other"),
    "convolutional network without a shape": replace(GPT, arch="cnn", model="3D U-Net"),
    "shape of the network not printed": replace(GPT, model="in-house 7B", hidden=None),
    "experts not printed": replace(GPT, arch="moe"),
    "number of devices not printed": replace(GPT, devices=None),
    "device not printed": replace(GPT, accelerator=""),
    "device not in the catalog": replace(GPT, accelerator="RX 7900 XTX"),
    "mixed device types": replace(GPT, accelerator="mixed: RTX-3090 + Titan-RTX"),
    "machine not in the catalog": replace(GPT, devices=16, dp=16, global_batch=16, link_outside="0 Gb/s"),
    "sequence length not printed": replace(GPT, sequence_tokens=None),
    "batch not printed": replace(GPT, micro_batch=None, global_batch=None),
    "batch does not divide among the ranks": replace(GPT, micro_batch=3, global_batch=8),
    "degrees do not multiply to the devices": replace(GPT, tp=3),
    "layout not printed": replace(GPT, dp=None),
    "number format is not modelled": replace(GPT, precision="int8"),
    "training method is not modelled": replace(GPT, method="adapter_v2"),
    "no quantity to compare with": replace(GPT, step_s=None),
    "states in host memory are not timed": replace(GPT, offload="cpu params"),
    "lengths of samples not printed": replace(
        GPT, source="ms-swift LLM benchmark", sequence_tokens=None, framework="ms-swift"
    ),
    "time withdrawn by its author": replace(GPT, notes="distrust the time"),
    "memory of this kind is not modelled": replace(
        GPT, step_s=None, memory=20.0, memory_unit="GiB", other="Quantization=int8 (bnb)"
    ),
    "parameters that the source counts not printed": replace(
        GPT, source="BigScience", step_s=None, device_tflop_per_s=100.0
    ),
    "sizes beyond any run": replace(GPT, hidden=10**9),
    # 64 stages for 32 layers, embedding and head
    "more pipeline stages than layers": replace(GPT, devices=64, dp=1, pp=64, global_batch=64),
}


@pytest.mark.parametrize("reason", SKIPPED)
def test_a_row_is_skipped_with_its_reason(reason: str):
    assert isinstance(read(GPT), Reading)
    assert read(SKIPPED[reason]) == Skip(row=SKIPPED[reason], reason=reason)


def test_what_to_write_is_said_of_reasons_that_there_are():
    assert set(WRITE) - set(SKIPPED) == set()
    for reason, row in SKIPPED.items():
        assert told(Skip(row=row, reason=reason)).startswith(reason.partition(" not in ")[0])


BARE = replace(GPT, dp=None)
SAID = {"tp": 1, "pp": 1, "dp": 8, "sharding": "DDP"}


@pytest.mark.parametrize("field", SAID)
def test_one_column_of_the_layout_makes_the_other_blanks_1(field: str):
    found = read(replace(BARE, **{field: SAID[field]}))

    assert isinstance(found, Reading)
    assert (found.plan.dp, found.plan.tp, found.plan.pp, found.plan.cp, found.plan.ep) == (8, 1, 1, 1, 1)


@pytest.mark.parametrize("blank", [{"devices": 1}, {"framework": "maxtext"}, {"model": "BERT-Large"}])
def test_a_layout_of_blanks_is_read_where_the_habit_is_known(blank: dict[str, object]):
    assert isinstance(read(BARE), Skip)
    assert isinstance(read(replace(BARE, **blank)), Reading)


@pytest.mark.parametrize(
    ("framework", "chunks", "sp"), [("NeMo", 4, True), ("torchtitan", 1, True), ("litgpt", 1, False)]
)
def test_blank_stages_and_sequence_sharding_follow_the_software(framework: str, chunks: int, sp: bool):
    row = replace(BARE, framework=framework, tp=2, pp=4, global_batch=16)
    plan = reading_of(row).plan

    assert (plan.virtual_stages, plan.sp) == (chunks, sp)
    said = reading_of(replace(row, vp=2, sp=not sp)).plan
    assert (said.virtual_stages, said.sp) == (2, not sp)


def reading_of(row: Row) -> Reading:
    found = read(row)
    assert isinstance(found, Reading)
    return found


def test_every_reason_is_tested():
    package = Path(__file__).parents[2] / "src" / "escala" / "calibration"
    # reasons of single operations are tested in test_operations
    single = {"collective_rows.py", "product_rows.py", "power_rows.py", "operations.py"}
    text = "".join(file.read_text() for file in package.glob("*.py") if file.name not in single)
    raised = set(re.findall(r'Unreadable\((?:reason or )?"([^"]+)"', text))
    chosen = set(re.findall(r'^        "([^"]* [^"]*)": ', text, re.MULTILINE))

    assert raised | chosen == set(SKIPPED)


def test_a_name_of_the_catalog_stands_for_a_shape():
    bare = replace(
        GPT, model="llama-3.1-8b", layers=None, hidden=None, heads=None, ffn_width=None, vocab=None
    )
    found = read(bare)

    assert isinstance(found, Reading)
    assert network_parameters(found.problem.workload.network).total == 8_030_261_248
