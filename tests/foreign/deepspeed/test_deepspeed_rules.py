"""Rules about DeepSpeed's files: each with a file that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.facts import Value
from escala.foreign.findings import Severity
from escala.foreign.jobs import Job, read_job

MICRO = '"train_micro_batch_size_per_gpu": 1'
SAVING = '"stage3_gather_16bit_weights_on_model_save": true'


def job(folder: Path, text: str, version: str | None = None, **given: Value) -> Job:
    (folder / "ds.json").write_text(text)
    return read_job([str(folder / "ds.json")], given, {"deepspeed": version} if version else {})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


def zero(inside: str, outside: str = MICRO) -> str:
    return f'{{{outside}, "zero_optimization": {{{inside}}}}}'


THREE = f'"stage": 3, {SAVING}'

BROKEN = [
    # two formats, and one of them off
    ("deepspeed-two-formats", '{%s, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'),
    ("", '{%s, "fp16": {"enabled": false}, "bf16": {"enabled": true}}'),
    ("deprecated-key", '{%s, "bfloat16": {"enabled": true}}'),
    # keys: unknown in silence, misspelt in silence, refused, removed
    ("unknown-key-silent", '{%s, "colour": 1}'),
    ("misspelt-key-silent", '{%s, "gradient_cliping": 1.0}'),
    ("misspelt-key-silent", '{%s, "activation_checkpointing": {"partitioned_activations": true}}'),
    ("misspelt-key", '{%s, "zero_optimization": {"stage": 1, "overlap_com": true}}'),
    ("removed-key", '{%s, "elasticity": {"enabled": false}}'),
    ("removed-key", '{%s, "zero_optimization": {"stage": 1, "mics_shard_size": 8}}'),
    ("deprecated-key", '{%s, "zero_optimization": {"stage": 1, "cpu_offload": true}}'),
    # texts for numbers
    ("deepspeed-text-number", '{%s, "zero_optimization": {"stage": "1"}}'),
    ("deepspeed-text-number", '{%s, "zero_optimization": {"stage": 1, "reduce_bucket_size": "5e8"}}'),
    ("deepspeed-text-number-cast", '{%s, "zero_optimization": {"stage": 1, "reduce_bucket_size": "50"}}'),
    ("wrong-type", '{%s, "zero_optimization": {"stage": 1, "reduce_bucket_size": "many"}}'),
    ("wrong-value", '{%s, "zero_optimization": {"stage": 5}}'),
    # auto
    ("deepspeed-auto-alone", '{%s, "gradient_clipping": "auto"}'),
    ("deepspeed-auto-alone", '{%s, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}'),
    ("deepspeed-auto-default", '{%s, "zero_optimization": {"stage": 1, "reduce_bucket_size": "auto"}}'),
    # batch
    ("deepspeed-batch-missing", '{"bf16": {"enabled": true}, "fp16": {"enabled": false}}'),
    # offload
    (
        "deepspeed-offload-optimizer-stage",
        '{%s, "zero_optimization": {"offload_optimizer": {"device": "cpu"}}}',
    ),
    ("", '{%s, "zero_optimization": {"offload_optimizer": {"pin_memory": true}}}'),
    (
        "deepspeed-offload-optimizer-kind",
        '{%s, "optimizer": {"type": "Lamb"},'
        ' "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    ),
    (
        "",
        '{%s, "optimizer": {"type": "AdamW"},'
        ' "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    ),
    (
        "deepspeed-nvme-path",
        '{%s, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}}',
    ),
    (
        "",
        '{%s, "zero_optimization": {"stage": 1,'
        ' "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 4}}}',
    ),
    (
        "deepspeed-nvme-buffers",
        '{%s, "zero_optimization": {"stage": 1,'
        ' "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 3}}}',
    ),
    # buckets
    (
        "deepspeed-small-bucket",
        '{%s, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 10000}}',
    ),
    ("", '{%s, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 50000000}}'),
    ("deepspeed-overlap-buckets", '{%s, "zero_optimization": {"stage": 2, "overlap_comm": true}}'),
    # what needs a stage or another switch
    ("deepspeed-needs-stage", '{%s, "zero_optimization": {"stage": 2, "zero_quantized_weights": true}}'),
    (
        "deepspeed-needs-stage",
        '{%s, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3, SAVING}}',
    ),
    ("", '{%s, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 2}}'),
    ("deepspeed-pipeline-zero", '{%s, "pipeline": {"stages": 2}, "zero_optimization": {"stage": 2}}'),
    ("", '{%s, "pipeline": {"stages": 2}, "zero_optimization": {"stage": 1}}'),
    ("deepspeed-max-grad-norm", '{%s, "optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}}'),
    ("deepspeed-scheduler-case", '{%s, "scheduler": {"type": "warmuplr"}}'),
    ("", '{%s, "scheduler": {"type": "WarmupLR"}}'),
    # stage 3
    ("deepspeed-gather-on-save", '{%s, "zero_optimization": {"stage": 3}}'),
    ("", '{%s, "zero_optimization": {"stage": 3, SAVING}}'),
    ("deepspeed-hpz-memory", '{%s, "zero_optimization": {"stage": 3, SAVING, "zero_hpz_partition_size": 8}}'),
    # accumulation
    ("deepspeed-reduces-each", '{%s, "gradient_accumulation_steps": 8, "zero_optimization": {"stage": 2}}'),
    ("", '{%s, "gradient_accumulation_steps": 8, "zero_optimization": {"stage": 1}}'),
    # experts
    (
        "deepspeed-experts-refuse",
        '{%s, "expert_parallel": {"enabled": true, "autoep_size": 4, "expert_tensor_parallel_size": 2}}',
    ),
    ("", '{%s, "expert_parallel": {"enabled": true, "autoep_size": 4}}'),
]


@pytest.mark.parametrize(("expected", "text"), BROKEN)
def test_a_file_that_breaks_a_rule_and_one_that_nearly_does(tmp_path: Path, expected: str, text: str) -> None:
    found = rules(job(tmp_path, text.replace("%s", MICRO).replace("SAVING", SAVING)))

    assert found == ([expected] if expected else [])


def test_auto_fails_where_code_calls_deepspeed_itself(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto"}')
    (tmp_path / "train.py").write_text("import deepspeed\nengine = deepspeed.initialize(config='ds.json')\n")

    found = rules(read_job([str(tmp_path / "ds.json"), str(tmp_path / "train.py")], {}, {}))

    assert [each for each in found if each.startswith("deepspeed-auto")] == ["deepspeed-auto"]


def test_bf16_is_spelled_once(tmp_path: Path) -> None:
    text = f'{{{MICRO}, "bf16": {{"enabled": true}}, "bfloat16": {{"enabled": true}}}}'

    assert rules(job(tmp_path, text)) == ["deepspeed-two-bf16", "deprecated-key"]


def test_an_offload_beside_hpz_and_a_copy_over_nodes(tmp_path: Path) -> None:
    text = zero(f'{THREE}, "zero_hpz_partition_size": 16, "offload_optimizer": {{"device": "cpu"}}')

    found = rules(job(tmp_path, text, devices_per_node=8))

    assert found == ["deepspeed-hpz-nodes", "deepspeed-hpz-offload", "deepspeed-hpz-memory"]


@pytest.mark.parametrize(("version", "expected"), [("0.19.2", ["deepspeed-tensor-zero-3"]), ("0.19.8", [])])
def test_tensor_parallelism_goes_with_stage_3_since_a_version(
    tmp_path: Path, version: str, expected: list[str]
) -> None:
    text = zero(THREE, f'{MICRO}, "tensor_parallel": {{"autotp_size": 2}}')

    assert rules(job(tmp_path, text, version)) == expected


@pytest.mark.parametrize(
    ("model", "version", "inside", "expected"),
    [
        ("deepseek-ai/DeepSeek-V3", "0.19.8", "", ["deepspeed-moe-leaves"]),
        ("deepseek-ai/DeepSeek-V3", "0.19.8", ', "leaf_module": {"classes": ["DeepseekV3MoE"]}', []),
        ("mistralai/Mixtral-8x7B-v0.1", "0.19.8", "", []),  # a leaf by default
        ("mistralai/Mixtral-8x7B-v0.1", "0.14.0", "", ["deepspeed-moe-leaves"]),
        ("meta-llama/Llama-3.1-8B", "0.19.8", "", []),
    ],
)
def test_experts_are_leaves_under_stage_3(
    tmp_path: Path, model: str, version: str, inside: str, expected: list[str]
) -> None:
    found = job(tmp_path, zero(THREE + inside), version, model=model)

    assert [each for each in rules(found) if each == "deepspeed-moe-leaves"] == expected


def test_a_batch_that_no_third_number_makes(tmp_path: Path) -> None:
    text = '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}'

    assert rules(job(tmp_path, text, devices=4)) == ["deepspeed-batch-divides"]  # 30 % (4 * 4)
    assert rules(job(tmp_path, text.replace("30", "32"), devices=4)) == []


def test_sequence_and_tensor_parallel_ranks_share_a_batch(tmp_path: Path) -> None:
    batch = '"train_batch_size": 8, "gradient_accumulation_steps": 2'
    text = f'{{{MICRO}, {batch}, "sequence_parallel_size": 2}}'

    assert rules(job(tmp_path, text, devices=8)) == []  # 1 * 2 * (8 / 2) = 8
    assert rules(job(tmp_path, text, devices=16)) == ["deepspeed-batch-product"]


def test_hugging_face_fills_in_auto_but_wants_no_fixed_batch_under_stage_3(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto",'
        ' "gradient_accumulation_steps": "auto",'
        f' "zero_optimization": {{"stage": 3, {SAVING}, "reduce_bucket_size": "auto"}}}}'
    )
    line = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --per_device_train_batch_size 8\n"
    (tmp_path / "run.sh").write_text(line)

    found = read_job([str(tmp_path / "run.sh")], {}, {})

    assert rules(found) == ["deepspeed-batch-zero-3"]


def test_activation_checkpointing_does_nothing_for_hugging_face(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        f'{{{MICRO}, "zero_optimization": {{"stage": 1}}, "activation_checkpointing": {{"profile": true}}}}'
    )
    (tmp_path / "a.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )

    assert rules(read_job([str(tmp_path / "a.yaml")], {}, {})) == ["deepspeed-checkpointing-unused"]


def test_a_launch_line_gives_devices_and_its_file(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(f"{{{MICRO}}}")
    line = "deepspeed --num_nodes=2 --num_gpus 8 --module pretrain --deepspeed_config ds.json\n"
    (tmp_path / "run.sh").write_text(line)

    found = read_job([str(tmp_path / "run.sh")], {}, {})

    wanted = {"devices": 16, "nodes": 2, "devices_per_node": 8, "micro_batch": 1}
    assert rules(found) == ["deepspeed-nodes-without-hosts"]
    assert {name: found.value(name) for name in wanted} == wanted


def test_a_host_file_gives_nodes_and_slots(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# two nodes\nnode-0 slots=4\nnode-1 slots=4\n")
    (tmp_path / "run.sh").write_text("deepspeed --hostfile hosts --num_gpus 2 train.py\n")

    found = read_job([str(tmp_path / "run.sh")], {}, {})

    assert (found.value("nodes"), found.value("devices_per_node")) == (2, 2)  # --num_gpus is the most of each
    assert rules(found) == []


def test_what_is_certain_is_an_error_and_what_costs_is_none(tmp_path: Path) -> None:
    found = job(tmp_path, zero('"stage": 3, "zero_hpz_partition_size": 8'))

    assert {each.severity for each in found.findings} == {Severity.WARNING, Severity.NOTE}
