"""Axolotl itself: its keys are those of the table, its schema takes what is written, and refuses the rest."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from escala.foreign.axolotl import writing
from escala.foreign.findings import rules
from foreign.axolotl.test_axolotl_rules import BASE, BROKEN
from foreign.round import written as written_files
from oracles import axolotl_keys
from oracles.keys import written
from oracles.needed import needed
from oracles.trainer_orders import written_by

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
needed("axolotl", "addict")
SCHEMA = axolotl_keys.schema()
VALID = Path(__file__).parents[1] / "foreign/valid"
ORDERS = written_by(writing)
DATA = "datasets: [{path: d, type: alpaca}]\nlearning_rate: 0.0001\nnum_epochs: 1\n"
ELSEWHERE = (
    "axolotl-fsdp-paged-8bit",
    "axolotl-context-attention",
    "axolotl-plugin-missing",
    "axolotl-context-packing",
)
"""What fails at the first save, needs ring-flash-attn, or is passed over in silence."""
HERE = [
    each
    for each in BROKEN
    if each[0].startswith("axolotl-") and rules()[each[0]].severity == "error" and each[0] not in ELSEWHERE
]


def test_the_table_of_keys_is_what_axolotl_takes() -> None:
    table = written(axolotl_keys.table())

    assert table == files("escala.foreign").joinpath("data/keys/axolotl.json").read_bytes()


def test_there_are_twelve_plans_and_more() -> None:
    assert len(ORDERS) >= 12


@pytest.mark.parametrize(("name", "order"), ORDERS, ids=[name for name, _ in ORDERS])
def test_what_is_written_is_taken_with_every_key(
    name: str, order: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_files(writing, order, tmp_path)
    monkeypatch.chdir(tmp_path)
    settings: dict[str, Any] = yaml.safe_load((tmp_path / writing.CONFIG).read_text())
    known = axolotl_keys.table().sections

    if order.plan.cp > 1:  # the schema imports ring-flash-attn, which needs a GPU to build
        settings.pop("context_parallel_size")
    found = SCHEMA(**settings)

    assert set(settings) <= set(known[""].keys)
    assert set(settings.get("fsdp_config", {})) <= set(known["fsdp_config"].keys)
    assert found.micro_batch_size == order.plan.micro_batch
    assert found.gradient_accumulation_steps == order.plan.micro_batches


@pytest.mark.parametrize(("rule", "key", "broken", "nearly"), HERE, ids=[each[0] for each in HERE])
def test_what_a_rule_calls_an_error_is_refused_and_what_is_near_is_not(
    rule: str, key: str, broken: str, nearly: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "z.json").write_text('{"zero_optimization": {"stage": 2}}')
    monkeypatch.chdir(tmp_path)

    with pytest.raises((ValueError, DeprecationWarning)):
        SCHEMA(**yaml.safe_load(BASE + DATA + broken))
    SCHEMA(**yaml.safe_load(BASE + DATA + nearly))


def test_unknown_keys_are_passed_over_in_silence() -> None:
    SCHEMA(**yaml.safe_load(BASE + DATA + "colour_of_loss: red\nfsdp_config: {colour: red}\n"))


@pytest.mark.parametrize("file", sorted(VALID.glob("axolotl-*.yaml")), ids=lambda file: file.name)
def test_files_without_fault_are_taken(file: Path) -> None:
    SCHEMA(**yaml.safe_load(file.read_text()))
