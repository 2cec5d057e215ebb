"""Megatron's arguments: where they stand in scripts, what they say, and the model that they build."""

from pathlib import Path

import pytest

from escala.catalog.families import network_from_config
from escala.catalog.networks import network
from escala.foreign.jobs import Job, read_job
from escala.model.parameters import network_parameters

SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8
NNODES=${SLURM_NNODES:-4}
MODEL_ARGS=(
    --num-layers 80 --hidden-size 8192
    --ffn-hidden-size 28672   # gated
    --num-attention-heads 64 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights
    --seq-length 8192 --max-position-embeddings 8192
    --vocab-size 128256 --position-embedding-type rope
)
PARALLEL_ARGS="--tensor-model-parallel-size 4 --sequence-parallel
  --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5
  --use-distributed-optimizer"
torchrun --nproc_per_node $GPUS --nnodes $NNODES --node_rank $RANK --master_addr $HOST \\
  pretrain_gpt.py "${MODEL_ARGS[@]}" \\
  $PARALLEL_ARGS --micro-batch-size 1 --global-batch-size 128 --train-iters 500 --lr 3.0e-4 --bf16 \\
  --fp8-format hybrid --fp8-recipe blockwise --recompute-granularity full --recompute-method block \\
  --recompute-num-layers 2 "$@" 2>&1 | tee log.txt
"""


def job(folder: Path, text: str, name: str = "run.sh") -> Job:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], {}, {})


def test_facts_come_from_arrays_variables_and_the_launcher(tmp_path: Path) -> None:
    found = job(tmp_path, SCRIPT)

    assert {name: each.value for name, each in found.facts.items()} == {
        "nodes": 4,
        "devices_per_node": 8,
        "devices": 32,
        "tp": 4,
        "pp": 4,
        "sp": True,
        "schedule": "interleaved",
        "virtual_stages": 5,
        "zero": 1,
        "sequence_tokens": 8192,
        "micro_batch": 1,
        "global_batch": 128,
        "steps": 500,
        "learning_rate": 3e-4,
        "precision": "fp8-blockwise",
        "recompute": "first-layers",
        "recompute_layers": 10,  # 2 in each of 5 stages of a rank
        "method": "pretrain",
    }
    assert [each.rule for each in found.findings] == []


def test_a_fact_stands_where_its_value_is_written(tmp_path: Path) -> None:
    facts = job(tmp_path, SCRIPT).facts

    lines = {name: facts[name].place.line for name in ("sequence_tokens", "tp", "pp", "micro_batch")}
    assert lines == {"sequence_tokens": 11, "tp": 14, "pp": 15, "micro_batch": 19}


def test_the_shape_builds_the_network_of_the_catalog(tmp_path: Path) -> None:
    reading = job(tmp_path, SCRIPT.replace("128256", "128128")).reading(
        "megatron"
    )  # 128128 = 250.25 * 128 * 4
    assert reading is not None
    assert reading.shape is not None

    built = network_from_config(reading.shape, "from the script", "test")

    # padded to 251 * 512 = 128512 rows, twice, each as wide as the stream
    wanted = network("llama-3.1-70b")
    more = network_parameters(built).total - network_parameters(wanted).total
    assert more == 2 * (128512 - 128256) * 8192


@pytest.mark.parametrize(
    "text",
    [
        "--num-layers 2 --hidden-size 64 \\\n--num-attention-heads 4 --seq-length 8 --micro-batch-size 1",
        "srun sh -c 'python -u pretrain_gpt.py --num-layers 2 --hidden-size 64 --micro-batch-size 1'",
        "torchrun train.py --num-layers 2 --hidden-size 64 --micro-batch-size=1 --my-own-option 3",
    ],
)
def test_arguments_are_found_alone_and_behind_other_programs(tmp_path: Path, text: str) -> None:
    found = job(tmp_path, text)

    assert (found.count("micro_batch"), [each.rule for each in found.findings]) == (1, [])


@pytest.mark.parametrize(
    "text",
    [
        "torchrun pretrain_gpt.py --deepspeed --zero-stage 1 --num-layers 2 --hidden-size 4",
        "python train.py --seq-length 4 --hidden-size 3",
        "echo --num-layers",
    ],
)
def test_other_programs_are_not_megatrons(tmp_path: Path, text: str) -> None:
    assert job(tmp_path, text).reading("megatron") is None


def test_a_yaml_of_arguments_is_read_block_by_block(tmp_path: Path) -> None:
    text = """language_model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
model_parallel:
  tensor_model_parallel_size: 2
  sequence_parallel: true
  bf16: true
seq_length: 4096
micro_batch_size: 2
"""

    found = job(tmp_path, text, "config.yaml")

    assert [found.value(name) for name in ("tp", "sp", "precision", "micro_batch")] == [2, True, "bf16", 2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--bf16", "bf16"),
        ("--fp16", "fp16"),
        ("", "fp32"),
        ("--bf16 --fp8-format hybrid", "fp8-tensorwise"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8"),
        ("--bf16 --fp4-format e2m1", "nvfp4"),
    ],
)
def test_the_precision_is_that_of_the_linear_maps(tmp_path: Path, options: str, expected: str) -> None:
    assert job(tmp_path, f"python pretrain_gpt.py --num-layers 2 {options}").value("precision") == expected


@pytest.mark.parametrize(
    ("options", "zero"),
    [
        ("", 0),
        ("--use-distributed-optimizer", 1),
        ("--use-megatron-fsdp", 3),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", 2),
        ("--use-torch-fsdp2", 3),
    ],
)
def test_the_zero_stage_is_what_is_sharded(tmp_path: Path, options: str, zero: int) -> None:
    assert job(tmp_path, f"python pretrain_gpt.py --num-layers 2 {options}").value("zero") == zero


@pytest.mark.parametrize(
    ("options", "family"),
    [
        ("", "gpt2"),
        ("--position-embedding-type rope", "gpt_neox"),
        ("--swiglu", "llama"),
        ("--swiglu --disable-bias-linear --add-qkv-bias", "qwen2"),
        ("--swiglu --disable-bias-linear --qk-layernorm", "qwen3"),
        ("--swiglu --disable-bias-linear --num-experts 8", "mixtral"),
        ("--swiglu --disable-bias-linear --num-experts 8 --qk-layernorm", "qwen3_moe"),
        ("--swiglu --disable-bias-linear --num-experts 8 --moe-layer-freq '([0]*1+[1]*3)'", "qwen3_moe"),
        (
            "--swiglu --disable-bias-linear --num-experts 8 --moe-shared-expert-intermediate-size 64",
            "qwen2_moe",
        ),
        (
            "--swiglu --disable-bias-linear --num-experts 8 --multi-latent-attention "
            "--moe-layer-freq '([0]*1+[1]*3)'",
            "deepseek_v3",
        ),
        ("--squared-relu", None),
    ],
)
def test_the_family_follows_from_the_kind_of_layer(tmp_path: Path, options: str, family: str | None) -> None:
    sizes = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --ffn-hidden-size 128 --vocab-size 1024"

    [reading] = job(tmp_path, f"python pretrain_gpt.py {sizes} {options}").readings

    assert (reading.shape or {}).get("model_type") == family
    if reading.shape is not None:
        assert network_from_config(reading.shape, "x", "test").layers == 4
