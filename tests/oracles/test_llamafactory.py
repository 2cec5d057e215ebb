"""LLaMA-Factory itself: its arguments are those of the table, it takes what is written, refuses the rest."""

import os
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from escala.foreign.findings import rules
from escala.foreign.llamafactory import writing
from foreign.llamafactory.test_llamafactory_rules import BASE, BROKEN
from foreign.round import written as written_files
from oracles import llamafactory_keys
from oracles.keys import written
from oracles.needed import needed
from oracles.trainer_orders import written_by

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
needed("llamafactory", "omegaconf")
PARSER = llamafactory_keys.parser()
VALID = Path(__file__).parents[1] / "foreign/valid"
ORDERS = written_by(writing)
SHARDED = ("zero", "sharded", "deepspeed")
ELSEWHERE = ("llamafactory-attention-name", "llamafactory-pure-bf16")
"""Rules of which more than the parser is needed: words that other parts refuse."""
HERE = [
    each
    for each in BROKEN
    if each[0].startswith("llamafactory-")
    and rules()[each[0]].severity == "error"
    and not any(word in each[0] for word in SHARDED)
    and each[0] not in ELSEWHERE
]
"""Rules that arguments alone decide, without DeepSpeed."""


def taken(settings: dict[str, Any]) -> object:
    """The arguments that the parser makes of settings, on a processor; files of DeepSpeed are not opened."""
    given = {"output_dir": "out", "use_cpu": True, **settings}
    given.pop("deepspeed", None)
    with (
        mock.patch.dict(os.environ, {"DISABLE_VERSION_CHECK": "1"}),
        mock.patch.object(PARSER, "_check_extra_dependencies"),
        mock.patch.object(PARSER, "is_torch_bf16_gpu_available", return_value=True),
        mock.patch("transformers.training_args.is_torch_tf32_available", return_value=True),
        mock.patch.object(PARSER.TrainingArguments, "parallel_mode", PARSER.ParallelMode.DISTRIBUTED),
    ):
        return PARSER.get_train_args(given)


def test_the_table_of_keys_is_what_llamafactory_takes() -> None:
    table = written(llamafactory_keys.table())

    assert table == files("escala.foreign").joinpath("data/keys/llamafactory.json").read_bytes()


def test_there_are_twelve_plans_and_more() -> None:
    assert len(ORDERS) >= 12


@pytest.mark.parametrize(("name", "order"), ORDERS, ids=[name for name, _ in ORDERS])
def test_what_is_written_is_taken(name: str, order: Any, tmp_path: Path) -> None:
    written_files(writing, order, tmp_path)

    model, data, arguments, tuning, _ = taken(yaml.safe_load((tmp_path / writing.CONFIG).read_text()))  # type: ignore[misc]

    assert arguments.per_device_train_batch_size == order.plan.micro_batch
    assert arguments.gradient_accumulation_steps == order.plan.micro_batches
    assert data.cutoff_len == order.problem.workload.sequence_tokens
    assert data.packing
    assert tuning.finetuning_type == ("lora" if order.problem.workload.lora else "full")
    assert model.quantization_bit == (4 if name == "qlora" else None)


@pytest.mark.parametrize(("rule", "key", "broken", "nearly"), HERE, ids=[each[0] for each in HERE])
def test_what_a_rule_calls_an_error_is_refused_and_what_is_near_is_not(
    rule: str, key: str, broken: dict[str, str], nearly: dict[str, str]
) -> None:
    def settings(keys: dict[str, str]) -> dict[str, Any]:
        text = "".join(f"{name}: {value}\n" for name, value in {**BASE, "dataset": "d", **keys}.items())
        found: dict[str, Any] = yaml.safe_load(text)
        return found

    with pytest.raises(ValueError):  # noqa: PT011  # each refusal has its own words
        taken(settings(broken))
    taken(settings(nearly))


@pytest.mark.parametrize("file", sorted(VALID.glob("llamafactory-*.yaml")), ids=lambda file: file.name)
def test_files_without_fault_are_taken(file: Path) -> None:
    taken(yaml.safe_load(file.read_text()))


def test_numbers_that_yaml_reads_as_text_are_converted() -> None:
    from omegaconf import OmegaConf

    assert OmegaConf.create("learning_rate: 5e-5")["learning_rate"] == 5e-5
