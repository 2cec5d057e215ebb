"""torchtune's YAML: its facts, and each rule with a file that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.documents import read_documents
from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job
from escala.foreign.torchtune.reading import score

WHOLE = """model:
  _component_: torchtune.models.llama3_1.llama3_1_70b
tokenizer:
  max_seq_len: 2048
dataset:
  packed: true
batch_size: 2
gradient_accumulation_steps: 1
optimizer:
  _component_: torch.optim.AdamW
  fused: true
  lr: 2e-5
dtype: bf16
fsdp_cpu_offload: true
enable_activation_checkpointing: true
compile: true
"""


def job(folder: Path, text: str, **given: Value) -> Job:
    (folder / "tune.yaml").write_text(text)
    return read_job([str(folder / "tune.yaml")], given, {})


def rules(folder: Path, text: str, **given: Value) -> list[str]:
    return [each.rule for each in job(folder, text, **given).findings]


def test_a_recipe_says_what_it_trains_and_how(tmp_path: Path) -> None:
    found = job(tmp_path, WHOLE)

    assert {name: each.value for name, each in found.facts.items()} == {
        "model": "llama-3.1-70b",
        "method": "full",
        "sequence_tokens": 2048,
        "packing": True,
        "micro_batch": 2,
        "accumulation": 1,
        "optimizer": "AdamW",
        "learning_rate": 2e-5,
        "precision": "bf16",
        "dtype_weights": "bf16",
        "zero": 3,
        "reshard": True,
        "offload_optimizer": "cpu",
        "offload_params": "cpu",
        "recompute": "full",
        "compile": True,
    }
    assert found.readings[0].engine == "torchtune"


@pytest.mark.parametrize(
    ("builder", "method", "bits"),
    [
        ("lora_llama3_1_8b", "lora", None),
        ("qlora_llama3_1_8b", "qlora", 4),
        ("qwen2_5_7b_instruct", "full", None),
    ],
)
def test_the_builder_says_the_method(tmp_path: Path, builder: str, method: str, bits: int | None) -> None:
    found = job(tmp_path, f"model:\n  _component_: torchtune.models.x.{builder}\n  lora_rank: 8\n")

    assert (found.value("method"), found.value("quantized_bits")) == (method, bits)


def test_a_file_without_its_components_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model:\n  _component_: other.models.llama\nbatch_size: 2\n")
    [document] = read_documents(str(tmp_path / "a.yaml"))

    assert score(document) == 0


def test_only_what_is_good_to_know_is_said_of_a_sound_recipe(tmp_path: Path) -> None:
    assert rules(tmp_path, WHOLE) == ["torchtune-stopped", "torchtune-offload"]


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("torchtune-accumulation", "gradient_accumulation_steps: 1", "gradient_accumulation_steps: 4"),
        ("torchtune-offload-not-fused", "fused: true", "fused: false"),
        ("torchtune-optimizer-in-backward", "compile: true", "optimizer_in_bwd: true\nclip_grad_norm: 1.0"),
        ("torchtune-recompute-twice", "compile: true", "ac_mode: selective"),
        ("torchtune-tensor-parallel", "compile: true", "tensor_parallel_dim: 2"),
        (
            "torchtune-moved",
            "compile: true",
            "metric_logger:\n  _component_: torchtune.utils.metric_logging.DiskLogger",
        ),
    ],
)
def test_each_rule_speaks_of_what_breaks_it(tmp_path: Path, rule: str, before: str, after: str) -> None:
    assert rule not in rules(tmp_path, WHOLE)
    assert rule in rules(tmp_path, WHOLE.replace(before, after))


def test_a_fused_optimizer_is_refused_under_tensor_parallelism(tmp_path: Path) -> None:
    component = "torchtune.models.llama3.base_llama_tp_plan"
    plan = f"tensor_parallel_dim: 2\ntensor_parallel_plan:\n  _component_: {component}\n"

    assert "torchtune-tensor-parallel" in rules(tmp_path, WHOLE + plan)
    assert "torchtune-tensor-parallel" not in rules(
        tmp_path, (WHOLE + plan).replace("fused: true", "fused: false")
    )


def test_one_device_has_nothing_to_reduce(tmp_path: Path) -> None:
    text = WHOLE.replace("gradient_accumulation_steps: 1", "gradient_accumulation_steps: 4")

    assert "torchtune-accumulation" not in rules(tmp_path, text, devices=1)
