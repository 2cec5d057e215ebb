"""AutoModel's recipes: facts, rules with files that break them and nearly do, and plans that come back."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.foreign.automodel import writing
from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job
from escala.foreign.orders import Order, lacking
from escala.model.plan import ContextKind, Dispatcher, Offload, Precision, Recompute, Schedule
from foreign.plans import ORDERS
from foreign.round import assert_round_trip, assert_written_or_refused

RECIPE = """step_scheduler:
  global_batch_size: 64
  local_batch_size: 4
  max_steps: 500
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B
  torch_dtype: bf16
distributed:
  strategy: fsdp2
  dp_size: none
  tp_size: 2
  cp_size: 2
  sequence_parallel: true
  activation_checkpointing: true
fp8:
  enabled: true
  recipe_name: tensorwise
packed_sequence:
  packed_sequence_size: 8192
optimizer:
  _target_: torch.optim.Adam
  lr: 1.0e-5
"""


THREE = "  pipeline: {pp_microbatch_size: 3}"


def job(folder: Path, text: str, **given: Value) -> Job:
    (folder / "config.yaml").write_text(text)
    return read_job([str(folder / "config.yaml")], given, {})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


def test_facts_are_in_the_words_of_the_field(tmp_path: Path) -> None:
    found = job(tmp_path, RECIPE)

    assert {name: each.value for name, each in found.facts.items()} == {
        "micro_batch": 4,
        "global_batch": 64,
        "steps": 500,
        "sequence_tokens": 8192,
        "model": "meta-llama/Llama-3.1-8B",
        "method": "full",
        "learning_rate": 1e-5,
        "optimizer": "Adam",
        "tp": 2,
        "cp": 2,
        "sp": True,
        "cp_kind": "all-gather",
        "zero": 3,
        "reshard": True,
        "recompute": "full",
        "precision": "fp8-tensorwise",
        "dtype_weights": "bf16",
    }
    assert rules(found) == []


@pytest.mark.parametrize(
    ("old", "new", "devices", "expected"),
    [
        ("", "", 16, []),
        ("", "", 18, ["automodel-world"]),
        ("global_batch_size: 64", "global_batch_size: 72", 16, ["automodel-batch"]),  # 4 ranks * 4
        ("dp_size: none", "dp_replicate_size: 2", 16, []),
        ("dp_size: none", "dp_replicate_size: 4", 16, ["automodel-replicas"]),
        ("dp_size: none", "ep_size: 3", 16, ["automodel-experts"]),
        ("dp_size: none", "ep_size: 8", 16, []),
        ("strategy: fsdp2", "strategy: megatron_fsdp", 16, []),
        ("dp_size: none", "pp_size: 2", None, ["automodel-pipeline-missing"]),
        ("dp_size: none", "pp_size: 2\n  pipeline: {pp_microbatch_size: 2}", None, []),
        (
            "dp_size: none",
            "pp_size: 2\n  pipeline: {pp_microbatch_size: 3}",
            None,
            ["automodel-pipeline-batch"],
        ),
        ("dp_size: none", "pipeline: {pp_microbatch_size: 2}", None, ["automodel-pipeline-idle"]),
        ("strategy: fsdp2", "_target_: x.FSDP2Manager", None, []),
        ("strategy: fsdp2", "_target_: x.MegatronFSDPManager", None, ["automodel-manager"]),
        ("dp_size: none", "dp_sizes: 3", None, ["misspelt-key"]),
        ("strategy: fsdp2", "strategy: fsdp3", None, ["wrong-value"]),
        ("torch_dtype: bf16", "backend: {enable_deepep: true}", None, ["automodel-deepep-ignored"]),
        ("torch_dtype: bf16", "backend: {dispatcher: deepep}", None, []),
    ],
)
def test_each_rule_speaks_where_it_is_broken(
    tmp_path: Path, old: str, new: str, devices: int | None, expected: list[str]
) -> None:
    given: dict[str, Value] = {} if devices is None else {"devices": devices}

    assert rules(job(tmp_path, RECIPE.replace(old, new), **given)) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("{strategy: ddp}", []),
        ("{strategy: ddp, tp_size: 2}", ["automodel-strategy"]),
        ("{strategy: mfsdp, pp_size: 2, pipeline: {}}", ["automodel-strategy"]),
        ("{strategy: megatron_fsdp, dp_replicate_size: 2}", ["automodel-strategy"]),
        ("{strategy: megatron_fsdp, activation_checkpointing: selective}", ["automodel-selective"]),
        ("{strategy: megatron_fsdp, activation_checkpointing: true}", []),
    ],
)
def test_strategies_have_what_they_have(tmp_path: Path, block: str, expected: list[str]) -> None:
    text = f"recipe: nemo_automodel.recipes.llm.train_ft.Recipe\ndistributed: {block}\n"

    assert rules(job(tmp_path, text)) == expected


WRITTEN = {
    "single-device",
    "ddp",
    "zero-1",
    "zero-2-accumulating",
    "fsdp",
    "hsdp",
    "fsdp-tp-sp",
    "lora",
    "qlora",
    "fsdp-fp8",
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_plan_comes_back_or_is_refused(name: str, tmp_path: Path) -> None:
    assert assert_written_or_refused(writing, ORDERS[name], tmp_path) == (name in WRITTEN)


def changed(name: str, **given: object) -> Order:
    return replace(ORDERS[name], plan=replace(ORDERS[name].plan, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "order",
    [
        changed("fsdp", recompute=Recompute.SELECTIVE, reshard=False),
        changed("fsdp-cp-ring", cp_kind=ContextKind.ALL_GATHER),
        changed("fsdp-ep", dispatcher=Dispatcher.FUSED),
        changed("zero-3-offload", offload_params=Offload.CPU),
        changed("fsdp", precision=Precision.FP8_ROWWISE, fused_loss=True),
        changed("fsdp", precision=Precision.FP32),
        changed("tp-pp-1f1b", zero=3, schedule=Schedule.GPIPE),
    ],
    ids=["selective", "context", "experts", "offload", "rowwise", "fp32", "pipeline"],
)
def test_other_plans_come_back_too(order: Order, tmp_path: Path) -> None:
    assert_round_trip(writing, order, tmp_path)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (changed("ddp", tp=2), "replicated weights (strategy ddp) with"),
        (changed("zero-1", pp=2, schedule=Schedule.GPIPE), "ZeRO stage 1 (strategy megatron_fsdp) with"),
        (changed("zero-1", recompute=Recompute.SELECTIVE), "selective recompute with ZeRO stage 1"),
        (changed("zero-3-offload"), "optimizer or weights offloaded alone"),
        (changed("fsdp-ep", ep=5), "experts over 5 of 32 ranks"),
    ],
)
def test_what_no_strategy_has_is_refused(order: Order, reason: str) -> None:
    assert any(reason in each for each in lacking(writing.TARGET, order))


@pytest.mark.parametrize("value", ["0", "-1", "--1", "1e400", "[2]", "none"])
def test_no_number_stops_the_reading(tmp_path: Path, value: str) -> None:
    for devices in (0, 8):
        assert job(tmp_path, RECIPE.replace(": 2", f": {value}"), devices=devices).readings
