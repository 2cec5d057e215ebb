"""torchtitan itself: its keys, its models, and its answer to what escala writes and finds."""

import importlib
import sys
from pathlib import Path

import pytest

from escala.foreign.keys import table
from escala.foreign.orders import lacking
from escala.foreign.torchtitan.writing import FUNCTION, MODULE, TARGET, write
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
needed("torchtitan")

from foreign.plans import ORDERS  # noqa: E402  # after the skip
from foreign.torchtitan.orders import MORE  # noqa: E402  # after the skip
from oracles import torchtitan_keys, torchtitan_models  # noqa: E402  # after the skip

WRITTEN = {name: order for name, order in (ORDERS | MORE).items() if not lacking(TARGET, order)}
REFUSED = {
    "c.parallelism.pipeline_parallel_degree = 2": "CUDA graphs do not support pipeline",
    "c.compile.enable_async_tensor_parallel = True": "Async TP requires",
    "c.activation_checkpoint = MemoryBudgetAC.Config()": "Memory budget",
    "c.training.seq_length = 1": "seq_length",
    "c.checkpoint = type(c.checkpoint)(enable=True, initial_load_path='./weights')": "absolute path",
}
"""What ConfigManager refuses, with a part of its answer; each is an error of check too."""


def parsed(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """The configuration as torchtitan's own manager reads it."""
    from torchtitan.config import ConfigManager

    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    with torchtitan_models.newest_device():
        return ConfigManager().parse_args(["--module", name, "--config", FUNCTION])


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
