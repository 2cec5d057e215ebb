"""Megatron-Bridge's recipes and overrides: facts, rules, and plans that come back."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.foreign.jobs import Job, read_job
from escala.foreign.megatron_bridge import writing
from escala.foreign.orders import Order
from escala.model.plan import ContextKind, Dispatcher, Offload, Precision, Recompute
from foreign.plans import ORDERS
from foreign.round import assert_round_trip, assert_written_or_refused

RECIPE = """from megatron.bridge.recipes.llama import llama31_70b_pretrain_config
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain

cfg = llama31_70b_pretrain_config()
cfg.model.tensor_model_parallel_size = 4
cfg.model.sequence_parallel = True
cfg.model.pipeline_model_parallel_size = 4
cfg.model.virtual_pipeline_model_parallel_size = 5
cfg.model.context_parallel_size = 2
cfg.model.seq_length = 8192
cfg.model.recompute_granularity = "selective"
cfg.train.micro_batch_size = 1
cfg.train.global_batch_size = 2 * 64
cfg.ddp.use_distributed_optimizer = True
cfg.optimizer.lr = 3e-4
cfg.mixed_precision = "bf16-with-fp8-current-scaling-mixed"
pretrain(cfg, forward_step)
"""


def job(folder: Path, text: str, name: str = "recipe.py", devices: int | None = None) -> Job:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], {} if devices is None else {"devices": devices}, {})


def rules(found: Job) -> list[tuple[str, int]]:
    return [(each.rule, each.place.line) for each in found.findings if each.place]


def test_facts_come_from_assignments_and_the_name_of_the_recipe(tmp_path: Path) -> None:
    found = job(tmp_path, RECIPE)

    assert {name: each.value for name, each in found.facts.items()} == {
        "model": "llama-3.1-70b",
        "method": "pretrain",
        "precision": "fp8-tensorwise",
        "tp": 4,
        "sp": True,
        "pp": 4,
        "schedule": "interleaved",
        "virtual_stages": 5,
        "cp": 2,
        "cp_kind": "ring",
        "sequence_tokens": 8192,
        "micro_batch": 1,
        "global_batch": 128,
        "learning_rate": 3e-4,
        "zero": 1,
        "recompute": "selective",
    }
    assert rules(found) == []


@pytest.mark.parametrize(
    ("old", "new", "devices", "expected"),
    [
        ("", "", 64, []),
        ("", "", 48, [("megatron-world", 6)]),
        ("2 * 64", "130", 128, [("megatron-batch", 14)]),  # 4 ranks * 1
        ("8192", "8190", None, [("megatron-sequence", 11)]),
        ('"selective"', '"selective"\ncfg.model.recompute_num_layers = 2', None, [("megatron-clash", 13)]),
        ("virtual_pipeline", "virtual_pipline", None, [("misspelt-key-silent", 9)]),
        ("cfg.optimizer.lr", "cfg.model.my_own_thing", None, []),
    ],
)
def test_megatrons_rules_hold_where_both_sides_are_said(
    tmp_path: Path, old: str, new: str, devices: int | None, expected: list[tuple[str, int]]
) -> None:
    text = RECIPE.replace(old, new) if old else RECIPE

    assert rules(job(tmp_path, text, devices=devices)) == expected


def test_overrides_of_a_script_are_settings(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc-per-node 8 run_recipe.py --recipe llama3_8b_sft_config \\\n"
        " model.tensor_model_parallel_size=2 train.global_batch_size=$BATCH train.micro_batch_size=2\n"
    )

    found = job(tmp_path, text, "run.sh")

    said = {name: found.value(name) for name in ("model", "method", "tp", "micro_batch", "global_batch")}
    assert said == {
        "model": "llama-3-8b",
        "method": "full",
        "tp": 2,
        "micro_batch": 2,
        "global_batch": None,
    }
    place = found.place("tp")
    assert place is not None
    assert place.line == 2


def test_other_python_is_not_its_own(tmp_path: Path) -> None:
    assert job(tmp_path, "import x\ncfg.model.hidden_size = 3\n").reading("megatron_bridge") is None


FOLLOWS = frozenset(("shard",))
"""From the replicas and the devices, which stand in the other file."""
WRITTEN = {
    "ddp",
    "zero-1",
    "zero-2-accumulating",
    "hsdp",
    "tp-pp-1f1b",
    "tp-pp-interleaved",
    "fsdp-cp-ring",
    "fsdp-ep",
    "lora",
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_plan_comes_back_or_is_refused(name: str, tmp_path: Path) -> None:
    assert assert_written_or_refused(writing, ORDERS[name], tmp_path, lost=FOLLOWS) == (name in WRITTEN)


def changed(name: str, **given: object) -> Order:
    return replace(ORDERS[name], plan=replace(ORDERS[name].plan, **given))  # type: ignore[arg-type]


OTHERS = {
    "first layers of each stage": changed(
        "tp-pp-interleaved", recompute=Recompute.FIRST_LAYERS, recompute_layers=10
    ),
    "all-gather": changed("fsdp-cp-ring", cp_kind=ContextKind.ALL_GATHER),
    "fp8 by blocks": changed("zero-1", precision=Precision.FP8_BLOCKWISE),
    "mxfp8": changed("zero-1", precision=Precision.MXFP8),
    "nvfp4": changed("zero-1", precision=Precision.NVFP4),
    "fp16": changed("tp-pp-1f1b", precision=Precision.FP16),
    "offloaded optimizer": changed("zero-1", offload_optimizer=Offload.CPU),
    "experts by DeepEP": changed("fsdp-ep", dispatcher=Dispatcher.FUSED),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_few_tools_have_comes_back(name: str, tmp_path: Path) -> None:
    assert_round_trip(writing, OTHERS[name], tmp_path)
