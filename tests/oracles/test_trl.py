"""TRL itself: its arguments are those of the table, and its parser takes what is written."""

from importlib.resources import files
from pathlib import Path

import pytest

from escala.foreign.trl import writing
from foreign.round import written as written_files
from oracles.keys import written
from oracles.needed import needed
from oracles.trainer_orders import written_by
from oracles.trl_keys import table

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
trl = needed("trl")
VALID = Path(__file__).parents[1] / "foreign/valid"
ORDERS = written_by(writing)
KINDS = {"sft": "SFTConfig", "dpo": "DPOConfig"}


@pytest.fixture(autouse=True)
def _ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.training_args.is_torch_tf32_available", lambda: True)


def parsed(file: Path, kind: str) -> tuple[object, ...]:
    """The arguments of a file, as the command reads it; on processors nothing is moved to a device."""
    classes = (trl.ScriptArguments, getattr(trl, kind), trl.ModelConfig, trl.DatasetMixtureConfig)
    return tuple(trl.TrlParser(classes).parse_args_and_config(["--config", str(file), "--use_cpu", "true"]))


def test_the_table_of_keys_is_what_trl_takes() -> None:
    assert written(table()) == files("escala.foreign").joinpath("data/keys/trl.json").read_bytes()


def test_there_are_twelve_plans_and_more() -> None:
    assert len(ORDERS) >= 12


@pytest.mark.parametrize(("name", "order"), ORDERS, ids=[name for name, _ in ORDERS])
def test_what_is_written_is_taken(
    name: str, order: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_files(writing, order, tmp_path)  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)

    _, arguments, model, _ = parsed(tmp_path / writing.CONFIG, "SFTConfig")

    plan = order.plan  # type: ignore[attr-defined]
    assert arguments.per_device_train_batch_size == plan.micro_batch  # type: ignore[attr-defined]
    assert arguments.gradient_accumulation_steps == plan.micro_batches  # type: ignore[attr-defined]
    assert model.use_peft is name.startswith(("lora", "qlora"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", ["max_lenght: 5", "max_seq_length: 5", "evaluation_strategy: epoch"])
def test_keys_that_it_does_not_know_are_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"model_name_or_path: m\n{line}\n")

    with pytest.raises(ValueError, match="Unknown arguments"):
        parsed(tmp_path / "a.yaml", "SFTConfig")


@pytest.mark.parametrize("file", sorted(VALID.glob("trl-*.yaml")), ids=lambda file: file.name)
def test_files_without_fault_are_taken(file: Path) -> None:
    parsed(file, KINDS[file.name.split("-")[1]])
