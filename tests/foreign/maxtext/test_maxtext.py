"""MaxText's settings: facts, rules with settings that break them and nearly do, and plans that come back."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.catalog.networks import network
from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job
from escala.foreign.maxtext import writing
from escala.foreign.maxtext.names import MODELS
from escala.foreign.orders import Order
from escala.model.plan import ContextKind, Offload, Precision, Recompute
from foreign.plans import ORDERS
from foreign.round import assert_round_trip, assert_written_or_refused

ALWAYS = frozenset(("compile",))
"""XLA compiles every program, so no setting says so."""


def job(folder: Path, text: str, name: str = "config.yml", **given: Value) -> Job:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], given, {})


def rules(found: Job) -> list[tuple[str, int]]:
    return [(each.rule, each.place.line) for each in found.findings if each.place]


CONFIG = """base_config: base.yml
model_name: llama3.1-70b
dcn_data_parallelism: 2
ici_fsdp_parallelism: 16
ici_tensor_parallelism: 4
ici_context_parallelism: 2
per_device_batch_size: 0.5
gradient_accumulation_steps: 4
max_target_length: 8192
remat_policy: minimal
quantization: fp8
"""


def test_facts_count_the_devices_that_share_a_sample(tmp_path: Path) -> None:
    found = job(tmp_path, CONFIG)

    assert {name: each.value for name, each in found.facts.items()} == {
        "model": "llama-3.1-70b",
        "devices": 256,  # 2 * 16 * 4 * 2
        "micro_batch": 4,  # 0.5 * 4 * 2
        "accumulation": 4,
        "global_batch": 512,  # 0.5 * 256 * 4
        "sequence_tokens": 8192,
        "tp": 4,
        "sp": False,
        "cp": 2,
        "cp_kind": "all-gather",
        "zero": 3,
        "reshard": True,
        "shard": 32,
        "replicas": 2,
        "precision": "fp8-tensorwise",
        "recompute": "selective",
    }
    assert rules(found) == []


def test_what_is_left_over_is_no_fact(tmp_path: Path) -> None:
    found = job(tmp_path, "per_device_batch_size: 2\nici_tensor_parallelism: 4\n")

    assert [found.value(name) for name in ("devices", "micro_batch", "zero")] == [None, 8, 3]


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m maxtext.trainers.pre_train.train base.yml",
        "python3 -u MaxText/train.py MaxText/configs/base.yml",
        "python3 -m MaxText.train src/MaxText/configs/base.yml",
    ],
)
def test_arguments_of_its_programs_are_settings(tmp_path: Path, command: str) -> None:
    options = "per_device_batch_size=2 steps=$STEPS remat_policy=full"
    text = f"export STEPS=30\n{command} run_name=$NAME \\\n {options}"

    found = job(tmp_path, text, "run.sh")

    assert [found.value(name) for name in ("micro_batch", "steps", "recompute")] == [2, 30, "full"]
    place = found.place("micro_batch")
    assert place is not None
    assert place.line == 3
    assert rules(found) == []


@pytest.mark.parametrize(
    ("text", "devices", "expected"),
    [
        ("ici_fsdp_parallelism: -1\nici_tensor_parallelism: -1", None, ["maxtext-axes-left-over"]),
        ("ici_fsdp_parallelism: 8\nici_tensor_parallelism: -1", None, []),
        ("dcn_data_parallelism: 2\nici_fsdp_parallelism: 8", 32, ["maxtext-devices"]),
        ("dcn_data_parallelism: 2\nici_fsdp_parallelism: 16", 32, []),
        ("ici_fsdp_parallelism: 16", 32, []),  # two slices
        ("ici_fsdp_parallelism: 16", 40, ["maxtext-devices"]),
        ("per_device_batch_size: 0.25\nici_tensor_parallelism: 2", None, ["maxtext-samples"]),
        ("per_device_batch_size: 0.5\nici_tensor_parallelism: 2", None, []),
        ("dcn_tensor_parallelism: 2", None, ["maxtext-slow-axis"]),
        ("dcn_fsdp_parallelism: 2", None, []),
        ("ici_pipeline_parallelism: 4\nbase_num_decoder_layers: 30", None, ["maxtext-pipeline-layers"]),
        (
            "ici_pipeline_parallelism: 4\nbase_num_decoder_layers: 32\nnum_layers_per_pipeline_stage: 2",
            None,
            [],
        ),
        (
            "ici_pipeline_parallelism: 4\nnum_pipeline_microbatches: 6",
            None,
            ["maxtext-pipeline-micro-batches"],
        ),
        ("ici_pipeline_parallelism: 4\nnum_pipeline_microbatches: 8", None, []),
        ("ici_expert_parallelism: 8\nnum_experts: 60", None, ["maxtext-experts"]),
        ("ici_expert_parallelism: 4\nnum_experts: 60", None, []),
        ("ici_fsdp_paralelism: 4\nici_fsdp_parallelism: 4", None, ["misspelt-key"]),
        ("ici_fsdp_parallelism: 4\nopt_type: adamx", None, ["wrong-value"]),
    ],
)
def test_each_rule_speaks_where_it_is_broken(
    tmp_path: Path, text: str, devices: int | None, expected: list[str]
) -> None:
    given: dict[str, Value] = {} if devices is None else {"devices": devices}

    assert [rule for rule, _ in rules(job(tmp_path, text, **given))] == expected


def test_every_model_is_one_of_the_catalog() -> None:
    assert all(network(name).layers for name in MODELS.values())


WRITTEN = {"single-device", "zero-1", "fsdp", "fsdp-tp-sp", "fsdp-cp-ring", "fsdp-ep", "fsdp-fp8"}


@pytest.mark.parametrize("name", ORDERS)
def test_a_plan_comes_back_or_is_refused(name: str, tmp_path: Path) -> None:
    order = ORDERS[name]
    model = order.problem.workload.network.name in MODELS.values()

    written = assert_written_or_refused(writing, order, tmp_path, lost=ALWAYS)

    assert written == (name in WRITTEN and model)


def changed(name: str, **given: object) -> Order:
    return replace(ORDERS[name], plan=replace(ORDERS[name].plan, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "order",
    [
        changed("fsdp", dp=16, recompute=Recompute.SELECTIVE),
        changed("fsdp", recompute=Recompute.NONE),
        changed("fsdp", offload_optimizer=Offload.CPU, offload_params=Offload.CPU),
        changed("fsdp", fused_loss=True),
        changed("fsdp-fp8", precision=Precision.MXFP8),
        changed("fsdp-cp-ring", cp_kind=ContextKind.ULYSSES),
        changed("fsdp-tp-sp", sp=False),
    ],
    ids=["replicas", "none", "offload", "fused loss", "mxfp8", "Ulysses", "tensor"],
)
def test_other_plans_come_back_too(order: Order, tmp_path: Path) -> None:
    work = order.problem.workload
    batch = order.plan.dp * order.plan.micro_batch * order.plan.micro_batches
    problem = replace(order.problem, workload=replace(work, global_batch=batch))

    assert_round_trip(writing, replace(order, problem=problem), tmp_path, lost=ALWAYS)


@pytest.mark.parametrize("value", ["0", "-2", "--1", "1e400", "[2]", "none"])
def test_no_number_stops_the_reading(tmp_path: Path, value: str) -> None:
    assert job(tmp_path, CONFIG.replace(": 2", f": {value}"), devices=8).readings
