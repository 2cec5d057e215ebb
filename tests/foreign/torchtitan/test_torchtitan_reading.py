"""torchtitan's configurations as facts: Python that is not run, flags of a command, older TOML."""

from pathlib import Path

import pytest

from escala.foreign.documents import read_documents
from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job
from escala.foreign.readings import VersionIs
from escala.foreign.torchtitan.reading import score

HEAD = "from torchtitan.models.llama3.config_registry import llama3_8b\n"
TOML = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 2
seq_len = 8192
compile = true
[parallelism]
data_parallel_shard_degree = 8
[activation_checkpoint]
mode = "selective"
selective_ac_option = "{option}"
"""


def job(folder: Path, text: str, name: str = "run.py", **given: Value) -> Job:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], given, {})


def values(found: Job, *names: str) -> dict[str, Value | None]:
    return {name: found.value(name) for name in names}


def test_a_function_starts_from_what_torchtitan_ships_and_sets_values(tmp_path: Path) -> None:
    text = HEAD + (
        "def mine():\n"
        "    c = llama3_8b()\n"
        "    c.training.local_batch_size = 2 * 2\n"
        "    c.parallelism.tensor_parallel_degree = 4\n"
        "    return c\n"
    )

    found = job(tmp_path, text)

    assert values(
        found, "model", "micro_batch", "tp", "sp", "sequence_tokens", "recompute", "fused_loss"
    ) == {
        "model": "llama-3.1-8b",
        "micro_batch": 4,
        "tp": 4,
        "sp": True,
        "sequence_tokens": 8192,
        "recompute": "selective",
        "fused_loss": True,
    }
    place = found.place("tp")
    assert place is not None
    assert (place.line, found.readings[0].version) == (5, "0.3.0")


def test_a_configuration_may_be_written_out(tmp_path: Path) -> None:
    text = (
        "from torchtitan.trainer import Trainer\n"
        "from torchtitan.models import llama3\n"
        "STEPS = 100\n"
        "def whole():\n"
        "    spec = llama3.model_registry('70B', converters=[MXFP8LinearConverter.Config()])\n"
        "    return Trainer.Config(\n"
        "        model_spec=spec,\n"
        "        optimizer=default_adamw(lr=1.5e-4),\n"
        "        training=TrainingConfig(local_batch_size=8, seq_len=4096, steps=STEPS),\n"
        "        parallelism=ParallelismConfig(pipeline_parallel_degree=4, tensor_parallel_degree=8,\n"
        "            data_parallel_shard_degree=2, data_parallel_replicate_degree=2,\n"
        "            pipeline_parallel_schedule='interleaved1f1b'),\n"
        "        compile=CompileConfig(enable=True),\n"
        "        activation_checkpoint=FullAC.Config(),\n"
        "    )\n"
    )

    found = job(tmp_path, text)

    # a pipeline cuts the local batch of 8 into 8 micro-batches of 1; 8 * 2 * 2 samples a step
    assert values(found, "micro_batch", "global_batch", "schedule", "virtual_stages", "pp", "reshard") == {
        "micro_batch": 1,
        "global_batch": 32,
        "schedule": "interleaved",
        "virtual_stages": 2,
        "pp": 4,
        "reshard": False,
    }
    assert values(found, "precision", "replicas", "shard", "steps", "learning_rate", "recompute") == {
        "precision": "mxfp8",
        "replicas": 2,
        "shard": 2,
        "steps": 100,
        "learning_rate": 1.5e-4,
        "recompute": "full",
    }
    assert values(found, "model", "compile", "devices") == {
        "model": "llama-3.1-70b",
        "compile": True,
        "devices": 128,  # 2 * 2 * 8 * 4
    }


def test_functions_of_the_file_are_followed_and_the_last_counts(tmp_path: Path) -> None:
    text = HEAD + (
        "def base():\n    c = llama3_8b()\n    c.training.seq_len = 2048\n    return c\n"
        "def longer():\n    c = base()\n    c.training.seq_len = 4096\n    c.activation_checkpoint = None\n"
        "    return c\n"
    )

    found = job(tmp_path, text)

    assert values(found, "sequence_tokens", "recompute") == {"sequence_tokens": 4096, "recompute": "none"}
    assert [each.rule for each in found.findings] == ["torchtitan-several-functions"]


def test_what_only_running_would_tell_is_no_fact(tmp_path: Path) -> None:
    text = HEAD + "def f():\n    c = llama3_8b()\n    c.training.seq_len = int(argv[1])\n    return c\n"

    assert job(tmp_path, text).value("sequence_tokens") is None


def test_flags_of_a_command_change_the_configuration_that_they_name(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b \\\n"
        "  --training.seq-len 4096 --parallelism.tensor_parallel_degree=2 activation-checkpoint:full\n"
    )

    found = job(tmp_path, text, "run.sh")

    assert values(found, "sequence_tokens", "tp", "recompute", "micro_batch", "model") == {
        "sequence_tokens": 4096,
        "tp": 2,
        "recompute": "full",
        "micro_batch": 1,
        "model": "llama-3.1-8b",
    }


def test_flags_over_a_file_are_no_contradiction(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(TOML.format(option="op"))

    found = job(tmp_path, "NGPU=8 CONFIG_FILE=train.toml ./run_train.sh --training.seq_len 4096\n", "run.sh")

    assert values(found, "sequence_tokens", "devices_per_node", "micro_batch") == {
        "sequence_tokens": 4096,
        "devices_per_node": 8,
        "micro_batch": 2,
    }
    assert "contradiction" not in [each.rule for each in found.findings]


@pytest.mark.parametrize(
    ("option", "recompute", "layers"),
    [("op", "selective", None), ("2", "first-layers", 16), ("1", "full", None)],  # 32 layers / 2
)
def test_older_files_recompute_by_operation_or_every_other_layer(
    tmp_path: Path, option: str, recompute: str, layers: int | None
) -> None:
    found = job(tmp_path, TOML.format(option=option), "train.toml")

    assert values(found, "recompute", "recompute_layers", "micro_batch", "compile", "shard") == {
        "recompute": recompute,
        "recompute_layers": layers,
        "micro_batch": 2,
        "compile": True,
        "shard": 8,
    }


def test_older_files_name_the_points_at_which_stages_begin(tmp_path: Path) -> None:
    text = (
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 8\n[experimental]\n'
        'pipeline_parallel_degree = 2\npipeline_parallel_schedule = "interleaved1f1b"\n'
        'pipeline_parallel_split_points = ["layers.8", "layers.16", "layers.24"]\n'
    )

    found = job(tmp_path, text, "train.toml")

    # three points make four stages, two on each of two ranks; 8 samples are cut in as many
    assert values(found, "pp", "virtual_stages", "schedule", "micro_batch") == {
        "pp": 2,
        "virtual_stages": 2,
        "schedule": "interleaved",
        "micro_batch": 2,
    }


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (TOML.format(option="op"), "before 0.1"),
        (TOML.format(option="op").replace("batch_size", "local_batch_size"), "0.1"),
        (TOML.format(option="op") + '[quantize.linear.float8]\nrecipe_name = "rowwise"', "0.2"),
    ],
)
def test_the_version_of_a_toml_is_told_by_its_names(tmp_path: Path, text: str, version: str) -> None:
    [reading] = job(tmp_path, text, "train.toml").readings

    assert (reading.version, reading.version_is) == (version, VersionIs.DETECTED)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "[tool.ruff]\nline-length = 100\n"),
        ("a.py", "import torch\ndef f():\n    return 1\n"),
        ("a.py", "import torchtitan\n"),
        ("a.sh", "torchrun train.py --parallelism.tensor_parallel_degree 4\n"),
    ],
)
def test_files_of_others_are_left_alone(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    [document] = read_documents(str(tmp_path / name))

    assert score(document) == 0
