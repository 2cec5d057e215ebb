"""From facts to a problem: which network, which engine, which plan, what is assumed and what is missing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checking.conftest import job_of
from escala.catalog.clusters import cluster_for
from escala.checking.machines import devices_of, machine_of
from escala.checking.networks import same_shape
from escala.checking.subjects import Subject, subject_of
from escala.foreign.jobs import Job, read_job
from escala.model.plan import Offload, Plan, Precision, Recompute, Schedule

OPTIONS = {"gpu": None, "gpus": None, "gpus_per_node": None, "network": None, "cluster": None}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("NousResearch/Llama-2-70b-chat-hf", "llama-2-70b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"),
        ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "llama-3.1-8b"),
        ("somebody/llama-3-8b-of-mine", None),
        ("Qwen/Qwen7-900B", None),
    ],
)
def test_variants_of_a_name_have_the_shape_of_the_base(name: str, known: str | None) -> None:
    assert same_shape(name) == known


def test_degrees_batch_and_sharding_become_a_plan(subject: Callable[..., Subject]) -> None:
    # 64 devices / (tp 4 * pp 2) = dp 8; 128 / (8 * 2) = 8 micro-batches
    found = subject(
        gpus=64, model="llama-3.1-8b", tp=4, sp=True, pp=2, zero=1, micro_batch=2, global_batch=128
    )

    assert found.plan == Plan(
        dp=8,
        zero=1,
        shard=8,
        tp=4,
        sp=True,
        pp=2,
        schedule=Schedule.ONE_F_ONE_B,
        micro_batch=2,
        micro_batches=8,
    )
    assert found.problem is not None
    assert found.problem.workload.global_batch == 128


def test_hybrid_sharding_counts_groups_that_hold_the_same(subject: Callable[..., Subject]) -> None:
    # 16 replicas in 2 groups: 8 ranks share the states
    found = subject(gpus=16, model="llama-3.1-8b", zero=3, replicas=2)

    assert found.plan is not None
    assert (found.plan.shard, found.plan.reshard) == (8, True)


def test_words_become_choices(subject: Callable[..., Subject]) -> None:
    found = subject(
        model="llama-3.1-8b", zero=3, recompute="selective", offload_optimizer="cpu", precision="fp16"
    )

    assert found.plan is not None
    assert found.plan.recompute is Recompute.SELECTIVE
    assert found.plan.offload_optimizer is Offload.CPU
    assert found.plan.precision is Precision.FP16


def test_weights_that_are_whole_on_every_rank_are_not_moved(subject: Callable[..., Subject]) -> None:
    found = subject(model="llama-3.1-8b", zero=2, offload_params="cpu")

    assert found.plan is not None
    assert found.plan.offload_params is Offload.NONE


def test_what_a_tool_takes_by_itself_is_told(subject: Callable[..., Subject]) -> None:
    found = subject(model="llama-3.1-8b", tool="transformers", engine="hf-trainer", precision="bf16")

    told = {(each.name, each.value, each.reason) for each in found.assumed}
    assert ("micro-batch", "8", "the default of transformers") in told


@pytest.mark.parametrize(
    ("engine", "facts", "name"),
    [
        ("deepspeed", {"zero": 2}, "deepspeed"),
        ("deepspeed", {"zero": 0}, "hf-trainer"),
        ("hf-trainer", {"dtype_weights": "bf16", "method": "full"}, "hf-bf16"),
        ("hf-trainer", {"dtype_weights": "bf16", "method": "lora"}, "hf-trainer"),
        ("torchtitan", {}, "pytorch"),
        (None, {}, "pytorch"),
    ],
)
def test_the_engine_is_that_of_the_tool(
    subject: Callable[..., Subject], engine: str | None, facts: dict[str, object], name: str
) -> None:
    assert subject(engine=engine, model="llama-3.1-8b", **facts).engine.name == name


def test_an_optimizer_that_nobody_modelled_is_a_gap(subject: Callable[..., Subject]) -> None:
    assert subject(model="llama-3.1-8b", optimizer="lamb").gaps == (
        "the optimizer lamb: estimated as AdamW, which needs more memory",
    )


def test_a_pipeline_without_a_global_batch_is_not_guessed(subject: Callable[..., Subject]) -> None:
    found = subject(model="llama-3.1-8b", pp=2, micro_batch=1)

    assert found.plan is None
    assert [each.add for each in found.missing] == ["--global-batch 256"]


def test_without_a_model_or_a_device_the_answer_says_what_to_add() -> None:
    job = job_of(devices=8)

    machine, lacking = machine_of(job, OPTIONS)
    found = subject_of(job, None, lacking)

    assert machine is None
    assert [each.add for each in found.missing] == [
        "--gpu h100-sxm, or --cluster NAME or FILE",
        "--model NAME, a config.json or its folder",
    ]


def test_devices_are_nodes_times_devices_on_each() -> None:
    assert devices_of(job_of(nodes=2, devices_per_node=8)) == 16
    assert devices_of(job_of(devices_per_node=4)) == 4
    assert devices_of(job_of(nodes=2)) is None


def test_the_files_name_the_machine_and_the_command_line_counts_first() -> None:
    job = job_of(devices=16, nodes=4, device="A100-SXM4-80GB")

    own, _ = machine_of(job, OPTIONS)
    given, _ = machine_of(job, {**OPTIONS, "gpu": "h100-sxm", "gpus": 32})

    assert own is not None
    assert (own["gpu"], own["gpus"], own["gpus_per_node"]) == ("a100-sxm-80gb", 16, 4)
    assert given is not None
    assert (given["gpu"], given["gpus"]) == ("h100-sxm", 32)


@pytest.mark.parametrize("facts", [{"devices": 0}, {"devices": 10**9}, {"nodes": 0, "devices_per_node": 8}])
def test_a_number_of_devices_that_no_cluster_has_is_none(facts: dict[str, int]) -> None:
    assert devices_of(job_of(**facts)) is None


def test_a_format_that_a_file_leaves_to_the_device_is_bf16() -> None:
    found = job_of("hf-trainer", "axolotl", model="llama-3.1-8b")
    open_job = replace(found, readings=(replace(found.readings[0], wanted=frozenset(("precision",))),))

    told = subject_of(open_job, cluster_for("h100-sxm", 8), None)

    assert told.plan is not None
    assert told.plan.precision is Precision.BF16
    assert "left to the device" in next(each.reason for each in told.assumed if each.name == "precision")


def forcing_sockets(folder: Path) -> Job:
    lines = ("#!/bin/bash", "#SBATCH --nodes=2", "export NCCL_IB_DISABLE=1", "srun torchrun --nnodes=2 \\")
    (folder / "job.sbatch").write_text("\n".join(lines) + "\n  --nproc-per-node=8 train.py\n")
    return read_job([str(folder / "job.sbatch")], {"model": "llama-3.1-8b", "device": "h100-sxm"}, {})


def test_forced_sockets_are_estimated_as_ethernet_and_said(tmp_path: Path) -> None:
    job = forcing_sockets(tmp_path)
    machine, _ = machine_of(job, OPTIONS)

    assert machine is not None
    assert machine["network"] == "eth-100g"
    found = subject_of(job, cluster_for("h100-sxm", 16, network="eth-100g"), None)
    assert ("link between nodes", "eth-100g") in [(each.name, each.value) for each in found.assumed]
    own = subject_of(job, cluster_for("h100-sxm", 16, network="10 Gb/s"), None)
    assert "link between nodes" not in [each.name for each in own.assumed]
    other = subject_of(job, cluster_for("h100-sxm", 16, network="ib-ndr"), None)
    assert [gap for gap in other.gaps if gap.startswith("TCP, which NCCL_IB_DISABLE forces")] != []


@pytest.mark.parametrize(
    "facts",
    [
        {"sequence_tokens": 10**22},
        {"micro_batch": 10**400},
        {"micro_batch": 10**6, "accumulation": 10**6},
        {"pp": 2, "virtual_stages": 10**6, "global_batch": 64},
    ],
)
def test_numbers_that_no_job_has_are_said_and_not_estimated(
    subject: Callable[..., Subject], facts: dict[str, int]
) -> None:
    found = subject(model="llama-3.1-8b", **facts)

    assert found.plan is None
    assert found.missing


MEGATRON = (
    "torchrun --nnodes=${NNODES:-1} --nproc-per-node=8 pretrain_gpt.py --num-layers 4 --hidden-size 512 "
    "--num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 --swiglu --bf16 "
    "--position-embedding-type rope --tensor-model-parallel-size 2 --micro-batch-size ${MBS:-2} "
    "--global-batch-size 64 --tokenizer-type HuggingFaceTokenizer --tokenizer-model "
)


@pytest.mark.parametrize(
    ("tokenizer", "rows", "reason"),
    [
        # 128,256 words to a multiple of 128 * TP 2
        ("meta-llama/Llama-3.1-8B", 128_256, "has the vocabulary of 'meta-llama/Llama-3.1-8B' by its name"),
        ("Qwen/Qwen7-900B", 50_304, "has a vocabulary that only 'Qwen/Qwen7-900B' tells"),
    ],
)
def test_a_vocabulary_is_that_of_the_tokenizer_or_said_to_be_unknown(
    tmp_path: Path, tokenizer: str, rows: int, reason: str
) -> None:
    (tmp_path / "run.sh").write_text(MEGATRON + tokenizer)

    found = subject_of(read_job([str(tmp_path / "run.sh")], {}, {}), cluster_for("h100-sxm", 8), None)

    assert found.network is not None
    assert found.network.main.embedding is not None
    assert found.network.main.embedding.vocab == rows
    assert found.assumed[0].reason.startswith(reason)
    # without --gpus the numbers of variables that are not set are assumed
    assert {each.name: each.value for each in found.assumed if "variable" in each.reason} == {
        "nodes": "1",
        "micro-batch": "2",
    }


def test_devices_of_the_command_line_replace_those_of_variables(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(MEGATRON + "x")

    job = read_job([str(tmp_path / "run.sh")], {"devices": 16}, {})
    found = subject_of(job, cluster_for("h100-sxm", 16), None)

    assert [each.name for each in found.assumed if "variable" in each.reason] == ["micro-batch"]
