"""torchtitan itself: its keys, its models, and its answer to what escala writes and finds."""

import importlib
import sys
from pathlib import Path

import pytest

from escala.foreign.jobs import read_job
from escala.foreign.keys import table
from escala.foreign.orders import lacking
from escala.foreign.shelltext import read_shell
from escala.foreign.torchtitan.writing import FUNCTION, MODULE, TARGET, write
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
needed("torchtitan")

from foreign.plans import ORDERS  # noqa: E402  # after the skip
from foreign.torchtitan.orders import MORE  # noqa: E402  # after the skip
from oracles import torchtitan_keys, torchtitan_models  # noqa: E402  # after the skip

VALID = Path(__file__).parents[1] / "foreign/valid"
WRITTEN = {name: order for name, order in (ORDERS | MORE).items() if not lacking(TARGET, order)}
REFUSED = {
    "c.parallelism.pipeline_parallel_degree = 2": "CUDA graphs do not support pipeline",
    "c.compile.enable_async_tensor_parallel = True": "Async TP requires",
    "c.activation_checkpoint = MemoryBudgetAC.Config()": "Memory budget",
    "c.training.seq_length = 1": "seq_length",
    "c.checkpoint = type(c.checkpoint)(enable=True, initial_load_path='./weights')": "absolute path",
}
"""What ConfigManager refuses, with a part of its answer; each is an error of check too."""


def parsed(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, function: str = FUNCTION) -> object:
    """The configuration as torchtitan's own manager reads it."""
    from torchtitan.config import ConfigManager

    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    with torchtitan_models.newest_device():
        return ConfigManager().parse_args(["--module", name, "--config", function])


def test_the_table_of_keys_is_what_torchtitan_has() -> None:
    assert torchtitan_keys.table() == table("torchtitan")


def test_models_and_configurations_are_what_torchtitan_ships() -> None:
    assert torchtitan_models.written() == torchtitan_models.FILE.read_bytes()


def test_enough_kinds_of_plans_are_written() -> None:
    assert len(WRITTEN) >= 12


@pytest.mark.parametrize("name", WRITTEN)
def test_torchtitan_reads_the_plan_that_was_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchtitan.distributed import ParallelDims

    order = WRITTEN[name]
    [file] = write(order)
    (tmp_path / file.name).write_text(file.text)

    config = parsed(tmp_path, MODULE, monkeypatch)

    training, parallelism = config.training, config.parallelism  # type: ignore[attr-defined]  # of torchtitan
    mesh = ParallelDims.from_config(parallelism, order.plan.devices)  # asserts that the product is the world
    with torchtitan_models.newest_device():
        config.model_spec.model.update_from_config(config=config)  # type: ignore[attr-defined]  # asserts heads
    assert (mesh.tp, mesh.pp, mesh.cp, mesh.ep) == (
        order.plan.tp,
        order.plan.pp,
        order.plan.cp,
        order.plan.ep,
    )
    assert mesh.dp_replicate * mesh.dp_shard == order.plan.dp
    assert training.global_batch_size == order.problem.workload.global_batch
    assert training.global_batch_size % (training.local_batch_size * order.plan.dp) == 0
    assert training.seq_len == order.problem.workload.sequence_tokens
    if order.plan.pp > 1:
        stages = len(parallelism.module_fqns_per_model_part)
        assert stages == order.plan.pp * order.plan.virtual_stages


@pytest.mark.parametrize(("line", "answer"), REFUSED.items())
def test_torchtitan_refuses_what_check_calls_an_error(
    line: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "from torchtitan.distributed.activation_checkpoint import MemoryBudgetAC\n"
        "from torchtitan.models.llama3.config_registry import llama3_8b\n"
        f"def {FUNCTION}():\n    c = llama3_8b()\n    {line}\n    return c\n"
    )
    (tmp_path / "refused.py").write_text(text)

    with pytest.raises((ValueError, AttributeError, SystemExit)) as error:
        parsed(tmp_path, "refused", monkeypatch)

    assert answer in str(error.value) or isinstance(error.value, SystemExit)


@pytest.mark.parametrize("file", sorted(VALID.glob("torchtitan-*.py")), ids=lambda file: file.stem)
def test_torchtitan_takes_the_files_that_check_calls_valid(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "valid_file.py").write_text(file.read_text())
    [reading] = [each for each in read_job([str(file)], {}, {}).readings if each.tool == "torchtitan"]
    functions = reading.extra["functions"]
    assert isinstance(functions, tuple)

    config = parsed(tmp_path, "valid_file", monkeypatch, functions[-1])

    said = {each.name: each.value for each in reading.facts}
    assert config.training.seq_len == said["sequence_tokens"]  # type: ignore[attr-defined]  # of torchtitan
    assert config.parallelism.tensor_parallel_degree == said["tp"]  # type: ignore[attr-defined]  # as above


def test_torchtitan_takes_the_flags_that_check_calls_valid() -> None:
    from torchtitan.config import ConfigManager

    script = read_shell((VALID / "torchtitan-launch.sh").read_text(), "run.sh")
    words = [each.text for each in script.commands[-1].words]
    with torchtitan_models.newest_device():
        config = ConfigManager().parse_args(words[words.index("--module") :])

    assert (config.training.steps, config.parallelism.data_parallel_shard_degree) == (100, 64)
