"""DeepSpeed itself: its keys are those of the table, and it refuses what the rules call errors."""

import copy
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from escala.foreign.deepspeed import writing
from escala.foreign.findings import Severity
from escala.foreign.jobs import read_job
from foreign.deepspeed.test_deepspeed_round_trip import WRITTEN
from oracles.deepspeed_keys import table
from oracles.keys import written
from oracles.modules_keys import table as modules_table
from oracles.needed import needed

pytestmark = pytest.mark.oracle
deepspeed = needed("deepspeed")
VALID = Path(__file__).parents[1] / "foreign/valid"


def parsed(content: Mapping[str, Any] | str, ranks: int = 1) -> Any:
    """What DeepSpeed makes of a configuration for so many ranks."""
    from deepspeed.runtime.config import DeepSpeedConfig

    with (
        mock.patch.object(deepspeed.comm, "get_world_size", return_value=ranks),
        mock.patch.object(deepspeed.comm, "get_rank", return_value=0),
    ):
        return DeepSpeedConfig(copy.deepcopy(content))


def test_the_table_of_keys_is_what_deepspeed_takes() -> None:
    assert written(table()) == files("escala.foreign").joinpath("data/keys/deepspeed.json").read_bytes()


def test_the_table_of_modules_is_what_transformers_has() -> None:
    assert written(modules_table()) == files("escala.foreign").joinpath("data/modules.json").read_bytes()


REFUSED = [
    {"fp16": {"enabled": True}, "bf16": {"enabled": True}},
    {"zero_optimization": {"stage": 5}},
    {"zero_optimization": {"stage": 1, "overlap_com": True}},
    {"zero_optimization": {"stage": 1, "mics_shard_size": 8}},
    {"elasticity": {"enabled": False}},
    {"train_batch_size": 3},
    {"train_micro_batch_size_per_gpu": "4", "gradient_accumulation_steps": 2},
    {"train_micro_batch_size_per_gpu": "auto"},
    {"bf16": {"enabled": True, "loss_scale": 0}},
    {"zero_optimization": {"stage": 1, "reduce_bucket_size": "5e8"}},
    {"bf16": {"enabled": True, "bf16_optimizer_states": True}},
    {"gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}},
    {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}},
]


@pytest.mark.parametrize("content", REFUSED, ids=str)
def test_deepspeed_refuses_what_is_called_an_error(tmp_path: Path, content: dict[str, Any]) -> None:
    from deepspeed.runtime.config import DeepSpeedConfigError

    whole = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, **content}
    (tmp_path / "ds.json").write_text(json.dumps(whole))

    with pytest.raises((AssertionError, TypeError, ValueError, DeepSpeedConfigError)):
        parsed(whole, 2)

    (tmp_path / "train.py").write_text("import deepspeed\ndeepspeed.initialize(config='ds.json')\n")
    found = read_job([str(tmp_path / "ds.json"), str(tmp_path / "train.py")], {"devices": 2}, {}).findings
    assert Severity.ERROR in {each.severity for each in found}


PASSED_OVER = [
    {"gradient_cliping": 1.0},
    {"activation_checkpointing": {"partitioned_activations": True}},
    {"zero_optimization": {"stage": 1, "cpu_offload": True}},
    {"zero_optimization": {"stage": 1, "reduce_bucket_size": "500000"}},
    {"zero_optimization": {"stage": 1, "reduce_bucket_size": "auto"}},
    {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
]


@pytest.mark.parametrize("content", PASSED_OVER, ids=str)
def test_what_deepspeed_passes_over_is_found(tmp_path: Path, content: dict[str, Any]) -> None:
    whole = {"train_micro_batch_size_per_gpu": 1, **content}
    (tmp_path / "ds.json").write_text(json.dumps(whole))

    parsed(whole)

    assert read_job([str(tmp_path / "ds.json")], {}, {}).findings


def test_a_stage_as_text_is_no_stage_for_hugging_face() -> None:
    from accelerate.utils.deepspeed import HfDeepSpeedConfig

    assert HfDeepSpeedConfig({"zero_optimization": {"stage": 3}}).is_zero3()
    assert not HfDeepSpeedConfig({"zero_optimization": {"stage": "3"}}).is_zero3()


def test_bf16_counts_before_its_old_spelling() -> None:
    both = {"bf16": {"enabled": False}, "bfloat16": {"enabled": True}, "train_batch_size": 1}

    assert parsed(both).bfloat16_config.enabled is False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves its file open
def test_comments_are_read_by_deepspeed_and_refused_by_hugging_face(tmp_path: Path) -> None:
    from accelerate.utils.deepspeed import HfDeepSpeedConfig

    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 1, // one\n "zero_optimization": {"stage": 1}}')

    assert parsed(str(file)).zero_optimization_stage == 1
    with pytest.raises(ValueError, match="Expecting property name"):
        HfDeepSpeedConfig(str(file))


def test_the_default_leaves_are_those_of_the_rule() -> None:
    from deepspeed.runtime.zero.leaf_module_config import DEFAULT_LEAF_MODULE_CLASSES

    from escala.foreign.deepspeed.blocks import DEFAULT_LEAVES

    assert {name.split(".")[2] for name in DEFAULT_LEAF_MODULE_CLASSES} == DEFAULT_LEAVES


def test_the_launcher_knows_the_options_that_are_read() -> None:
    from deepspeed.launcher.runner import parse_args

    line = parse_args(
        ["--num_nodes", "2", "--num_gpus", "8", "--hostfile", "h", "train.py", "--deepspeed", "a"]
    )

    assert (line.num_nodes, line.num_gpus, line.user_args) == (2, 8, ["--deepspeed", "a"])


@pytest.mark.parametrize("file", sorted(VALID.glob("deepspeed-*.json")), ids=lambda file: file.name)
def test_deepspeed_reads_the_valid_files(file: Path) -> None:
    content = json.loads(file.read_text("utf-8"))
    if "auto" not in file.read_text("utf-8"):
        parsed(content, 8)


@pytest.mark.parametrize("name", WRITTEN)
def test_plans_become_configurations(name: str) -> None:
    order, plan = WRITTEN[name], WRITTEN[name].plan
    content = json.loads(next(each.text for each in writing.write(order) if each.name.endswith(".json")))

    config = parsed(content, plan.devices // plan.tp)  # AutoTP's groups give the data ranks at run time

    assert config.train_batch_size == plan.micro_batch * plan.micro_batches * plan.dp
    assert config.zero_optimization_stage == plan.zero
    assert config.tensor_parallel_config.autotp_size == (plan.tp if plan.tp > 1 else 0)
    assert config.optimizer_params["lr"] == order.learning_rate


@pytest.mark.parametrize("name", WRITTEN)
def test_configurations_agree_with_the_options_of_the_script(name: str) -> None:
    from transformers import HfArgumentParser, TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    order = WRITTEN[name]
    texts = {each.name: each.text for each in writing.write(order)}
    words = texts["launch.sh"].partition("train.py")[2].replace("\\\n", " ").split()
    own = ("--deepspeed", "--bf16", "--fp16", "--torch_compile", "--torch_compile_mode", "--use_liger_kernel")
    kept = [word for pair in zip(words[::2], words[1::2], strict=True) if pair[0] not in own for word in pair]
    parser = HfArgumentParser(TrainingArguments)  # type: ignore[arg-type]
    arguments, rest = parser.parse_args_into_dataclasses([*kept, "--use_cpu"], return_remaining_strings=True)
    flags = dict(zip(words[::2], words[1::2], strict=True))
    arguments.bf16, arguments.fp16 = "--bf16" in flags, "--fp16" in flags
    config = HfTrainerDeepSpeedConfig(json.loads(texts["ds_config.json"]))

    config.trainer_config_process(arguments)

    assert config.mismatches == []
    task = {"--model_name_or_path", "--dataset_name", "--block_size", "--dtype", "--from_scratch"}
    assert set(rest[::2]) <= task | {"--sequence_parallel"}
