"""transformers itself: its arguments are those of the table, and what rules call errors it refuses."""

import inspect
from importlib.resources import files
from pathlib import Path

import pytest

from foreign.transformers.test_transformers_rules import BROKEN, HEAD
from oracles.keys import written
from oracles.needed import needed
from oracles.transformers_keys import FSDP, table

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
transformers = needed("transformers")
VALID = Path(__file__).parents[1] / "foreign/valid"
REFUSED = (
    "trainer-fp16-and-bf16",
    "trainer-full-eval-formats",
    "trainer-best-strategies",
    "trainer-prefetch",
)
"""Rules of severity error that the arguments alone decide, without hardware and without a trainer."""
KEYS = ("trainer-misspelt", "removed-key", "wrong-type")


@pytest.fixture(autouse=True)
def _ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.training_args.is_torch_tf32_available", lambda: True)


def parsed(folder: Path, text: str, *, extra: bool = False) -> object:
    """The arguments of a file, as a script on HfArgumentParser reads it."""
    (folder / "a.yaml").write_text(text + "use_cpu: true\n")
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    [found] = parser.parse_yaml_file(str(folder / "a.yaml"), allow_extra_keys=extra)
    return found


def test_the_table_of_keys_is_what_transformers_takes() -> None:
    assert written(table()) == files("escala.foreign").joinpath("data/keys/transformers.json").read_bytes()


@pytest.mark.parametrize("key", FSDP)
def test_each_key_of_fsdp_is_one_that_is_asked_for(key: str) -> None:
    kind = transformers.TrainingArguments

    source = inspect.getsource(kind._process_fsdp_args) + inspect.getsource(kind._apply_legacy_fsdp_to_config)

    assert f'"{key}"' in source


@pytest.mark.parametrize("rule", [*REFUSED, *KEYS])
def test_what_a_rule_calls_an_error_is_refused_and_what_is_near_is_not(rule: str, tmp_path: Path) -> None:
    [(broken, nearly)] = [(each[2], each[3]) for each in BROKEN if each[0] == rule]

    with pytest.raises(ValueError):  # noqa: PT011  # each refusal has its own words
        parsed(tmp_path, HEAD + broken)
    parsed(tmp_path, HEAD + nearly, extra=True)


def test_a_number_that_yaml_reads_as_text_stays_one(tmp_path: Path) -> None:
    assert parsed(tmp_path, HEAD + "learning_rate: 5e-5\n").learning_rate == "5e-5"  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", sorted(VALID.glob("transformers-*.yaml")), ids=lambda file: file.name)
def test_files_without_fault_are_taken(file: Path, tmp_path: Path) -> None:
    parsed(tmp_path, file.read_text(), extra=True)
