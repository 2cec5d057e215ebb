"""Accelerate's files and launch lines: their facts, and which word counts where two say the same."""

from pathlib import Path

import pytest

from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job


def job(folder: Path, text: str, name: str = "accelerate.yaml", **given: Value) -> Job:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], given, {})


def facts(found: Job) -> dict[str, Value]:
    return {name: each.value for name, each in found.facts.items()}


FSDP2 = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_activation_checkpointing: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""


def test_fsdp2_is_stage_3_over_all_processes(tmp_path: Path) -> None:
    assert facts(job(tmp_path, FSDP2)) == {
        "devices": 16,
        "nodes": 2,
        "devices_per_node": 8,  # 16 processes / 2 machines
        "precision": "bf16",
        "zero": 3,
        "reshard": True,
        "recompute": "full",
        "wraps": ("LlamaDecoderLayer",),
    }


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("FULL_SHARD", {"zero": 3, "reshard": True}),
        ("1", {"zero": 3, "reshard": True}),
        ("SHARD_GRAD_OP", {"zero": 3, "reshard": False}),
        ("3", {"zero": 0}),
        ("HYBRID_SHARD", {"zero": 3, "reshard": True, "shard": 8, "replicas": 2}),  # 16 / 2 in a node
    ],
)
def test_strategies_of_fsdp1_by_name_and_number(
    tmp_path: Path, strategy: str, expected: dict[str, Value]
) -> None:
    block = f"fsdp_config:\n  fsdp_sharding_strategy: {strategy}\n"

    found = facts(job(tmp_path, f"distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\n{block}"))

    placed = {"devices": 16, "nodes": 2, "devices_per_node": 8}
    assert found == {**placed, **expected}


def test_keys_of_the_fsdp_block_may_lack_their_prefix(tmp_path: Path) -> None:
    text = "distributed_type: FSDP\nfsdp_config:\n  version: 2\n  offload_params: true\n"

    found = job(tmp_path, text)

    assert facts(found) == {"zero": 3, "reshard": True, "offload_params": "cpu", "offload_optimizer": "cpu"}
    assert found.facts["offload_params"].said == "fsdp_config.offload_params"


def test_a_mesh_shards_over_data_and_context_ranks(tmp_path: Path) -> None:
    block = (
        "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
        "  parallelism_config_dp_shard_size: 4\n  parallelism_config_tp_size: 2\n"
        "  parallelism_config_cp_size: 2\n  parallelism_config_cp_comm_strategy: alltoall\n"
    )

    found = job(tmp_path, FSDP2.replace("16\n", "32\n") + block)

    wanted = {"dp": 8, "shard": 8, "replicas": 2, "tp": 2, "cp": 2, "cp_kind": "ring"}  # 4 × 2 shards
    assert {name: found.value(name) for name in wanted} == wanted


def test_sequence_parallelism_of_deepspeed_is_ulysses(tmp_path: Path) -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 3\n"
        "parallelism_config:\n  parallelism_config_sp_size: 4\n  parallelism_config_dp_shard_size: 2\n"
    )

    found = job(tmp_path, text)

    assert (found.value("cp"), found.value("cp_kind"), found.value("zero")) == (4, "ulysses", 3)


def test_megatron_takes_what_the_file_leaves_out(tmp_path: Path) -> None:
    text = (
        "distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
        "  megatron_lm_use_distributed_optimizer: true\n  megatron_lm_sequence_parallelism: true\n"
    )

    assert facts(job(tmp_path, text)) == {
        "devices": 8,
        "tp": 2,
        "cp": 2,  # the default of accelerate 1.15
        "zero": 1,
        "recompute": "full",
        "sp": True,
    }


def test_a_deepspeed_block_without_stage_is_stage_2(tmp_path: Path) -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  gradient_accumulation_steps: 8\n"
    )

    assert facts(job(tmp_path, text)) == {"devices": 4, "zero": 2, "accumulation": 8}


def test_options_of_the_launch_line_replace_the_file_without_contradiction(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FSDP2)
    line = (
        "accelerate launch --config_file a.yaml --num_processes=4 --num-machines 1 train.py --max_steps 10\n"
    )

    found = job(tmp_path, line, "run.sh")

    assert [reading.tool for reading in found.readings] == ["accelerate", "accelerate"]
    assert (found.value("devices"), found.value("nodes"), found.value("steps")) == (4, 1, 10)
    assert "contradiction" not in {each.rule for each in found.findings}


def test_a_launch_line_names_what_its_script_is_given(tmp_path: Path) -> None:
    line = (
        "srun accelerate launch --use_fsdp --fsdp_version 2 --num_processes 8 train.py \\\n"
        "  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --learning_rate 5e-5 \\\n"
        "  --gradient_checkpointing True --model_name_or_path gpt2 --max_length 1024\n"
    )

    assert facts(job(tmp_path, line, "run.sh")) == {
        "devices": 8,
        "zero": 3,
        "reshard": True,
        "micro_batch": 2,
        "accumulation": 4,
        "learning_rate": 5e-5,
        "recompute": "full",
        "model": "gpt2",
        "sequence_tokens": 1024,
    }


def test_a_launch_line_in_a_comment_is_read_at_its_line(tmp_path: Path) -> None:
    found = job(tmp_path, "import torch\n# accelerate launch --num_processes 2 train.py\n", "train.py")

    fact = found.facts["devices"]
    assert (fact.value, fact.place.line) == (2, 2)


def test_json_is_read_too(tmp_path: Path) -> None:
    text = '{"distributed_type": "MULTI_GPU", "num_processes": 2, "num_machines": 1}'

    assert job(tmp_path, text, "accelerate.json").value("zero") == 0
