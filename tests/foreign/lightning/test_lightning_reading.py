"""Lightning's Trainer as facts: calls in Python files that are not run, and YAML of LightningCLI."""

from pathlib import Path

import pytest

from escala.foreign.documents import read_documents
from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job
from escala.foreign.lightning.reading import score

HEAD = "import lightning as L\nfrom lightning.pytorch.strategies import *\n"


def job(folder: Path, text: str, name: str = "train.py", **given: Value) -> Job:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], given, {})


def values(found: Job, *names: str) -> dict[str, Value | None]:
    return {name: found.value(name) for name in names}


def test_a_call_of_the_trainer_says_devices_precision_and_accumulation(tmp_path: Path) -> None:
    text = HEAD + (
        "trainer = L.Trainer(devices=4, num_nodes=2, strategy='ddp', precision='16', max_steps=100,\n"
        "    accumulate_grad_batches=8)\n"
        "loader = DataLoader(data, batch_size=2)\n"
    )

    found = job(tmp_path, text)

    assert values(found, "devices", "nodes", "zero", "precision", "steps", "accumulation", "micro_batch") == {
        "devices": 8,
        "nodes": 2,
        "zero": 0,
        "precision": "fp16",
        "steps": 100,
        "accumulation": 8,
        "micro_batch": 2,
    }


@pytest.mark.parametrize(
    ("strategy", "facts", "engine"),
    [
        ("'fsdp'", {"zero": 3, "reshard": True, "offload_params": None}, "lightning-fsdp"),
        (
            "'fsdp_cpu_offload'",
            {"zero": 3, "offload_params": "cpu", "offload_optimizer": "cpu"},
            "lightning-fsdp",
        ),
        ("FSDPStrategy(sharding_strategy='SHARD_GRAD_OP')", {"zero": 3, "reshard": False}, "lightning-fsdp"),
        (
            "FSDPStrategy(sharding_strategy='HYBRID_SHARD', device_mesh=(2, 4))",
            {"zero": 3, "replicas": 2, "shard": 4},
            "lightning-fsdp",
        ),
        ("FSDPStrategy(activation_checkpointing_policy={Block})", {"recompute": "full"}, "lightning-fsdp"),
        (
            "'deepspeed_stage_2_offload'",
            {"zero": 2, "offload_optimizer": "cpu", "offload_params": None},
            "deepspeed",
        ),
        ("'deepspeed'", {"zero": 2, "offload_optimizer": None}, "deepspeed"),
        ("'deepspeed_stage_3_offload_nvme'", {"zero": 3, "offload_params": "nvme"}, "deepspeed"),
        (
            "DeepSpeedStrategy(stage=3, offload_optimizer=True)",
            {"zero": 3, "offload_optimizer": "cpu"},
            "deepspeed",
        ),
        (
            "ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=4)",
            {"tp": 4, "dp": 2, "zero": 3},
            "pytorch",
        ),
    ],
)
def test_strategies_say_what_they_shard(
    tmp_path: Path, strategy: str, facts: dict[str, Value | None], engine: str
) -> None:
    found = job(tmp_path, f"{HEAD}chosen = {strategy}\ntrainer = L.Trainer(devices=8, strategy=chosen)\n")

    assert values(found, *facts) == facts
    reading = found.reading("lightning")
    assert reading is not None
    assert reading.engine == engine


def test_yaml_of_the_command_line_says_the_same(tmp_path: Path) -> None:
    text = """trainer:
  devices: [0, 1, 2, 3]
  precision: bf16-true
  strategy:
    class_path: lightning.pytorch.strategies.FSDPStrategy
    init_args:
      sharding_strategy: FULL_SHARD
      cpu_offload: true
data:
  init_args:
    batch_size: 4
"""

    found = job(tmp_path, text, "config.yaml")

    names = ("devices", "precision", "dtype_weights", "zero", "offload_params", "micro_batch")
    assert values(found, *names) == {
        "devices": 4,
        "precision": "bf16",
        "dtype_weights": "bf16",
        "zero": 3,
        "offload_params": "cpu",
        "micro_batch": 4,
    }


def test_what_is_said_nowhere_has_lightnings_default(tmp_path: Path) -> None:
    found = job(tmp_path, HEAD + "trainer = L.Trainer(devices=1)\n")

    assert values(found, "precision", "zero") == {"precision": "fp32", "zero": 0}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "from transformers import Trainer\nTrainer(model, args)\n"),
        ("a.py", "import lightning as L\nprint(L.__version__)\n"),
        ("a.yaml", "trainer:\n  total_epochs: 15\n"),
    ],
)
def test_trainers_of_others_are_left_alone(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    [document] = read_documents(str(tmp_path / name))

    assert score(document) == 0
