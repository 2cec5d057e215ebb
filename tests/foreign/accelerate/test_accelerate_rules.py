"""Rules about Accelerate's files: each with a file that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job

WRAPPED = "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
WRAP = f"  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n{WRAPPED}"
FSDP2 = f"distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n{WRAP}"
FSDP1 = FSDP2.replace("2\n", "1\n")
ZERO = "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n"
MEGATRON = (
    "distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config:\n"
    "  megatron_lm_context_parallel_size: 1\n  megatron_lm_recompute_granularity: full\n"
)
NODES = (
    "distributed_type: MULTI_GPU\nnum_processes: 16\nnum_machines: 2\nmain_process_ip: 10.0.0.1\n"
    "main_process_port: 29500\n"
)
LLAMA: dict[str, Value] = {"model": "meta-llama/Llama-3.1-8B"}


def job(folder: Path, text: str, **given: Value) -> Job:
    (folder / "accelerate.yaml").write_text(text)
    return read_job([str(folder / "accelerate.yaml")], given, {})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


def mesh(**sizes: int) -> str:
    rows = "".join(f"  parallelism_config_{name}_size: {size}\n" for name, size in sizes.items())
    return f"parallelism_config:\n{rows}"


BROKEN = [
    ("", FSDP2),
    ("", NODES + "same_network: true\n"),
    ("", MEGATRON),
    ("accelerate-no-type", "num_processes: 8\nnum_machines: 1\nmachine_rank: 0\n"),
    ("accelerate-unquoted-no", FSDP2 + "mixed_precision: no\n"),
    ("", FSDP2 + "mixed_precision: 'no'\n"),
    ("unknown-key", FSDP2 + "colour: blue\n"),
    ("misspelt-key", FSDP2 + "num_machine: 1\n"),
    ("misspelt-key-silent", FSDP2 + "  fsdp_reshard_after_forwards: false\n"),
    ("removed-key", FSDP2 + "ipex_config: {}\n"),
    ("wrong-value", FSDP2 + "mixed_precision: bfloat16\n"),
    ("accelerate-block-unused", FSDP2 + "deepspeed_config:\n  zero_stage: 3\n"),
    ("", FSDP2 + "deepspeed_config: {}\n"),
    # DeepSpeed
    ("accelerate-zero-default", ZERO + "  gradient_accumulation_steps: 2\n"),
    ("accelerate-offload-stage", ZERO + "  zero_stage: 2\n  offload_param_device: cpu\n"),
    ("", ZERO + "  zero_stage: 2\n  offload_param_device: none\n"),
    ("accelerate-nvme-path", ZERO + "  zero_stage: 2\n  offload_optimizer_device: nvme\n"),
    ("", ZERO + "  zero_stage: 2\n  offload_optimizer_device: nvme\n  offload_optimizer_nvme_path: /nvme\n"),
    ("accelerate-zero-3-save", ZERO + "  zero_stage: 3\n"),
    ("", ZERO + "  zero_stage: 3\n  zero3_save_16bit_model: true\n"),
    # number formats
    ("accelerate-fp8-backend", FSDP2 + "mixed_precision: fp8\n"),
    ("", FSDP2 + "mixed_precision: fp8\nfp8_config:\n  backend: TE\n"),
    (
        "accelerate-fp8-loading",
        FSDP2 + "mixed_precision: fp8\nfp8_config:\n  backend: AO\n",
    ),
    (
        "",
        FSDP2 + "  fsdp_cpu_ram_efficient_loading: false\nmixed_precision: fp8\nfp8_config:\n  backend: AO\n",
    ),
    ("accelerate-downcast", FSDP2 + "downcast_bf16: 'yes'\n"),
    ("", FSDP2 + "downcast_bf16: 'no'\n"),
    # several machines
    ("accelerate-same-network", NODES),
    ("", NODES + "rdzv_backend: c10d\n"),
    ("accelerate-no-port", NODES.replace("main_process_port: 29500\n", "same_network: true\n")),
    ("accelerate-no-address", NODES.replace("10.0.0.1", "127.0.0.1") + "same_network: true\n"),
    ("accelerate-machine-rank", NODES + "same_network: true\nmachine_rank: 2\n"),
    ("accelerate-one-rank", NODES + "same_network: true\nmachine_rank: 0\n"),
    ("accelerate-processes-divide", NODES.replace("16", "15") + "same_network: true\n"),
    ("accelerate-processes-few", NODES.replace("16", "4") + "same_network: true\n"),
    ("accelerate-no-processes", FSDP2.replace("num_processes: 8\n", "")),
    ("accelerate-gpu-ids", FSDP2 + "gpu_ids: 0,1,2,3\n"),
    ("", FSDP2 + "gpu_ids: 0,1,2,3,4,5,6,7\n"),
    # FSDP1 and FSDP2
    ("accelerate-fsdp1", FSDP1 + "  fsdp_sharding_strategy: FULL_SHARD\n"),
    ("accelerate-fsdp1-default", FSDP1.replace("  fsdp_version: 1\n", "")),
    ("accelerate-fsdp2-unused", FSDP2 + "  fsdp_use_orig_params: true\n"),
    ("accelerate-fsdp2-strategy", FSDP2 + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"),
    ("accelerate-fsdp2-reshard", FSDP2 + "  fsdp_reshard_after_forward: FULL_SHARD\n"),
    ("", FSDP2 + "  fsdp_reshard_after_forward: 'false'\n"),
    ("accelerate-fsdp2-local-state", FSDP2 + "  fsdp_state_dict_type: LOCAL_STATE_DICT\n"),
    ("", FSDP2 + "  fsdp_state_dict_type: FULL_STATE_DICT\n"),
    ("accelerate-activation-offload", FSDP2 + "  fsdp_activation_checkpointing_offload: true\n"),
    ("", FSDP2 + "  fsdp_activation_checkpointing_offload: true\n  fsdp_activation_checkpointing: true\n"),
    ("accelerate-no-wrap", FSDP2.replace(WRAP, "")),
    ("accelerate-no-wrap", FSDP2.replace(WRAP, "  fsdp_auto_wrap_policy: NO_WRAP\n")),
    ("", FSDP2.replace(WRAP, "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n")),
    (
        "accelerate-wrap-missing",
        FSDP2.replace(WRAPPED, ""),
    ),
    ("accelerate-wrap-unknown", FSDP2.replace("LlamaDecoderLayer", "LlamaDecoderlayer")),
    ("accelerate-wrap-other", FSDP2.replace("LlamaDecoderLayer", "GPT2Block")),
    # degrees
    ("", FSDP2 + mesh(dp_shard=4, tp=2)),
    ("accelerate-mesh-product", FSDP2 + mesh(dp_shard=4, tp=4)),
    ("accelerate-context-and-sequence", FSDP2 + mesh(cp=2, sp=2, dp_shard=2)),
    ("accelerate-sequence-deepspeed", FSDP2 + mesh(sp=2, dp_shard=4)),
    ("", ZERO + "  zero_stage: 2\n" + mesh(sp=2, dp_shard=2)),
    ("accelerate-context-fsdp2", ZERO + "  zero_stage: 2\n" + mesh(cp=2, dp_shard=2)),
    ("", FSDP2 + mesh(cp=2, dp_shard=4)),
    ("accelerate-replicate-only", FSDP2 + mesh(dp_replicate=4, tp=2)),
    ("accelerate-nothing-to-shard", FSDP2 + mesh(tp=8)),
    # Megatron
    ("accelerate-megatron-context", MEGATRON.replace("  megatron_lm_context_parallel_size: 1\n", "")),
    ("accelerate-megatron-recompute", MEGATRON.replace("  megatron_lm_recompute_granularity: full\n", "")),
    ("accelerate-megatron-selective", MEGATRON.replace("full", "selective")),
    ("accelerate-megatron-product", MEGATRON + "  megatron_lm_tp_degree: 3\n"),
    ("accelerate-megatron-bubble", MEGATRON + "  megatron_lm_pp_degree: 4\n"),
    ("", MEGATRON + "  megatron_lm_pp_degree: 4\n  megatron_lm_num_micro_batches: 16\n"),
    ("accelerate-megatron-sequence", MEGATRON + "  megatron_lm_sequence_parallelism: true\n"),
    ("", MEGATRON + "  megatron_lm_sequence_parallelism: true\n  megatron_lm_tp_degree: 2\n"),
]


@pytest.mark.parametrize(("expected", "text"), BROKEN)
def test_a_file_that_breaks_a_rule_and_one_that_nearly_does(tmp_path: Path, expected: str, text: str) -> None:
    assert rules(job(tmp_path, text, **LLAMA)) == ([expected] if expected else [])


def test_a_strategy_by_number_is_told_by_name(tmp_path: Path) -> None:
    found = job(tmp_path, FSDP1 + "  fsdp_sharding_strategy: 2\n", **LLAMA)

    assert rules(found) == ["accelerate-fsdp1", "accelerate-strategy-number"]
    assert "SHARD_GRAD_OP" in found.findings[1].what


def test_what_rank_0_loads_has_to_reach_the_others(tmp_path: Path) -> None:
    text = FSDP1 + "  fsdp_sync_module_states: false\n"
    without = text + "  fsdp_cpu_ram_efficient_loading: false\n"

    assert rules(job(tmp_path, text, **LLAMA)) == ["accelerate-loading-unsynced", "accelerate-fsdp1"]
    assert rules(job(tmp_path, without, **LLAMA)) == ["accelerate-fsdp1"]


def test_processes_may_come_from_the_launch_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FSDP2.replace("num_processes: 8\n", ""))
    (tmp_path / "run.sh").write_text(
        "python -m accelerate.commands.launch --config_file a.yaml --num_processes 8 train.py\n"
    )

    found = read_job([str(tmp_path / "run.sh")], {}, {})

    assert (found.value("devices"), rules(found)) == (8, ["accelerate-wrap-family"])


def test_a_mesh_needs_fsdp2(tmp_path: Path) -> None:
    assert rules(job(tmp_path, FSDP1 + mesh(dp_shard=8), **LLAMA)) == [
        "accelerate-mesh-fsdp1",
        "accelerate-fsdp1",
    ]


def test_reshard_as_truth_is_for_fsdp2(tmp_path: Path) -> None:
    found = rules(job(tmp_path, FSDP1 + "  fsdp_reshard_after_forward: false\n", **LLAMA))

    assert found == ["accelerate-fsdp1", "accelerate-reshard-fsdp1"]


def test_a_block_of_one_family_is_told_where_no_model_is_known(tmp_path: Path) -> None:
    assert rules(job(tmp_path, FSDP2.replace("LlamaDecoderLayer", "GPT2Block"))) == ["accelerate-wrap-family"]


def test_processes_are_counted_over_all_machines(tmp_path: Path) -> None:
    text = NODES.replace("16", "2") + "same_network: true\n"

    assert rules(job(tmp_path, text, devices_per_node=8)) == ["accelerate-processes-global"]
    assert rules(job(tmp_path, text)) == []


def test_nothing_of_a_deepspeed_file_may_stand_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}'
    )
    block = "  deepspeed_config_file: ds.json\n"

    assert rules(job(tmp_path, ZERO + block + "  zero3_init_flag: false\n")) == []
    assert rules(job(tmp_path, ZERO + block + "  gradient_accumulation_steps: 1\n")) == [
        "accelerate-beside-file"
    ]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("device_map='auto'", "accelerate-zero-3-device-map"),
        ("device_map=None", ""),
        ("load_in_8bit=True", "accelerate-zero-3-8-bit"),
        ("load_in_8bit=False", ""),
    ],
)
def test_code_may_not_place_weights_under_zero_3(tmp_path: Path, argument: str, expected: str) -> None:
    (tmp_path / "train.py").write_text(f"# device_map='auto' is gone\nmodel = load('gpt2', {argument})\n")
    (tmp_path / "a.yaml").write_text(ZERO + "  zero_stage: 3\n  zero3_save_16bit_model: true\n")

    found = rules(read_job([str(tmp_path / "a.yaml"), str(tmp_path / "train.py")], {}, {}))

    assert [each for each in found if each.startswith("accelerate")] == ([expected] if expected else [])


def test_an_unknown_option_of_a_launch_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("accelerate launch --num_proceses 8 train.py --anything 1\n")

    found = read_job([str(tmp_path / "run.sh")], {}, {})

    assert rules(found) == ["misspelt-key"]
    assert found.findings[0].edits[0].text == "num_processes"


def test_fsdp1_is_rewritten_as_fsdp2(tmp_path: Path) -> None:
    text = (
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n"
        "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_use_orig_params: true\n" + WRAP
    )
    found = job(tmp_path, text, **LLAMA).findings
    edits = sorted((edit for each in found for edit in each.edits), key=lambda edit: -edit.start)

    for edit in edits:
        text = text[: edit.start] + edit.text + text[edit.end :]

    assert text == (
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n"
        "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n" + WRAP
    )
    assert rules(job(tmp_path, text, **LLAMA)) == []
