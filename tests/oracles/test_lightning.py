"""Lightning itself: its arguments, its names, and the Trainer that a written script builds."""

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from escala.foreign.keys import table
from escala.foreign.lightning.meaning import GONE, NAMES, SHARDINGS, STRATEGIES, WRITTEN
from escala.foreign.lightning.writing import TARGET, write
from escala.foreign.orders import Order, lacking
from escala.model.plan import Offload, Plan
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
needed("lightning")

from dataclasses import replace  # noqa: E402  # after the skip

from foreign.plans import ORDERS  # noqa: E402  # after the skip
from oracles import lightning_keys  # noqa: E402  # after the skip

MORE = {
    "shard-grad-op": Plan(dp=8, zero=3, shard=8),
    "hybrid-kept": Plan(dp=8, zero=3, shard=4),
    "fsdp-offload": Plan(
        dp=8, zero=3, shard=8, reshard=True, offload_optimizer=Offload.CPU, offload_params=Offload.CPU
    ),
    "zero-2-offload": Plan(dp=8, zero=2, shard=8, offload_optimizer=Offload.CPU),
    "zero-1-alone": Plan(dp=4, zero=1, shard=4, micro_batches=2),
}
ALL = ORDERS | {name: replace(ORDERS["fsdp"], plan=plan) for name, plan in MORE.items()}
EXPRESSED = {name: order for name, order in ALL.items() if not lacking(TARGET, order)}


def stub(name: str, **values: object) -> ModuleType:
    """A module of a library that only running would need."""
    module = ModuleType(name)
    for key, value in values.items():
        setattr(module, key, value)
    return module


@pytest.fixture
def eight_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight devices that nobody touches, and the libraries that a script names."""
    import torch
    from lightning.fabric.accelerators import cuda as fabric
    from lightning.pytorch.accelerators import cuda
    from lightning.pytorch.strategies import deepspeed

    for module in (fabric, cuda):
        monkeypatch.setattr(module, "num_cuda_devices", lambda: 8)
    for name in ("_DEEPSPEED_AVAILABLE", "_DEEPSPEED_GREATER_EQUAL_0_16"):
        monkeypatch.setattr(deepspeed, name, True)
    layer = type("Layer", (torch.nn.Module,), {})
    names = ("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer")
    stubs = [
        stub("datasets", load_dataset=None),
        stub("transformers", **dict.fromkeys(names)),
        stub("deepspeed.ops.adam", DeepSpeedCPUAdam=None),
        *(stub(name) for name in ("transformers.models", "transformers.models.llama", "deepspeed.ops")),
        stub("transformers.models.llama.modeling_llama", LlamaDecoderLayer=layer),
    ]
    monkeypatch.setitem(sys.modules, "deepspeed", MagicMock())
    for each in stubs:
        monkeypatch.setitem(sys.modules, each.__name__, each)


def trainer_of(order: Order, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The Trainer that the script of an order builds, at the point where it would begin."""
    import lightning

    built: list[Any] = []
    monkeypatch.setattr(lightning.Trainer, "fit", lambda self, *_: built.append(self))
    [file] = write(order)
    (folder / file.name).write_text(file.text)
    runpy.run_path(str(folder / file.name), run_name="__main__")
    return built[0]


def test_the_table_of_arguments_is_what_lightning_has() -> None:
    assert lightning_keys.table() == table("lightning")


def test_names_of_strategies_are_those_of_the_registry() -> None:
    from lightning.pytorch.strategies import StrategyRegistry

    registered = set(StrategyRegistry.available_strategies())

    assert set(STRATEGIES) - registered == {"auto"}
    assert registered - set(STRATEGIES) == set()
    assert set(GONE) & registered == set()


def test_names_of_precisions_are_those_that_lightning_takes() -> None:
    from typing import get_args

    from lightning.fabric.plugins.precision.precision import _PRECISION_INPUT_STR

    assert set(get_args(_PRECISION_INPUT_STR)) == set(NAMES)


def test_names_of_sharding_strategies_are_those_of_torch() -> None:
    from torch.distributed.fsdp import ShardingStrategy

    assert set(SHARDINGS) == set(ShardingStrategy.__members__)


def test_twelve_kinds_of_plans_are_written() -> None:
    assert len(EXPRESSED) >= 12


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize("name", EXPRESSED)
def test_the_script_builds_the_trainer_of_its_plan(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = EXPRESSED[name]

    trainer = trainer_of(order, tmp_path, monkeypatch)

    plan, strategy = order.plan, trainer.strategy
    assert trainer.num_nodes * trainer.num_devices == plan.devices
    assert (trainer.max_steps, trainer.accumulate_grad_batches) == (order.steps, plan.micro_batches)
    assert trainer.precision == WRITTEN[plan.precision]
    sharding = getattr(strategy, "sharding_strategy", None)
    stage = getattr(strategy, "config", None) or {}
    if plan.zero == 0:
        assert type(strategy).__name__ in ("DDPStrategy", "SingleDeviceStrategy")
    elif sharding is not None:
        meant = SHARDINGS[sharding.name]
        assert (meant.zero, meant.reshard) == (3, plan.reshard)
        assert meant.is_hybrid == (1 < plan.shard < plan.dp)
    else:
        assert stage["zero_optimization"]["stage"] == plan.zero


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"strategy": "dpp"}, "invalid strategy name"),
        ({"strategy": "ddp_sharded"}, "invalid strategy name"),
        ({"precision": "bf16-mix"}, "is invalid"),
        ({"strategy": "fsdp"}, "requires a GPU accelerator"),
        ({"gpus": 8}, "unexpected keyword argument"),
    ],
)
def test_lightning_refuses_what_check_calls_an_error(arguments: dict[str, Any], answer: str) -> None:
    import lightning

    with pytest.raises((ValueError, TypeError), match=answer):
        lightning.Trainer(accelerator="cpu", **arguments)
