"""The models and configurations that torchtitan ships, asked of torchtitan itself.

`PYTHONPATH=src:tests python -m oracles.torchtitan_models` writes data/models/torchtitan.json.
"""

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import msgspec

from escala.foreign.torchtitan.meaning import POLICIES
from escala.foreign.torchtitan.sizes import Recipe, Shipped, Size

FILE = Path(__file__).parents[2] / "src/escala/foreign/data/models/torchtitan.json"
MODULES = {
    "llama3": "llama3_configs",
    "qwen3": "qwen3_configs",
    "qwen3_5": "qwen3_5_configs",
    "deepseek_v3": "deepseekv3_configs",
    "gpt_oss": "gptoss_configs",
    "kimi_k2_7": "kimi_k2_5_configs",
}
SEEING = ("qwen3_5", "kimi_k2_7")
"""Modules whose configurations load images with torchvision, which has no build beside torch of here."""
KERNELS = (
    "fla",
    *("fla.modules", "fla.modules.conv", "fla.modules.conv.triton", "fla.modules.conv.triton.ops"),
    *("fla.ops", "fla.ops.gated_delta_rule"),
    *("fla.ops.gated_delta_rule.chunk", "fla.ops.gated_delta_rule.fused_recurrent"),
)
"""Kernels of Qwen3.5 that torchtitan does not bring: configurations only name them."""
PLAIN = (str, int, float, bool, type(None))


def shipped() -> Shipped:
    """Sizes of every flavor, and settings of every configuration function."""
    models, recipes = {}, {}
    with newest_device():
        for name, configs in MODULES.items():
            module = importlib.import_module(f"torchtitan.models.{name}")
            flavors = [each for each in vars(module) if each.endswith("_configs")]
            table = getattr(module, configs if configs in flavors else flavors[0])
            models[name] = {flavor: size_of(module.model_registry(flavor).model) for flavor in table}
            recipes |= dict(recipes_of(name)) if name not in SEEING else {}
    return Shipped(version=version("torchtitan"), models=models, recipes=dict(sorted(recipes.items())))


@contextmanager
def newest_device() -> Iterator[None]:
    """Converters and attention ask for the newest device; here is none."""
    quantization = "torchtitan.components.quantization"
    asked = [f"{quantization}.{each}" for each in ("float8", "mx", "nvfp4")]
    with ExitStack() as stack:
        for name in [each for each in KERNELS if each not in sys.modules]:
            sys.modules[name] = MagicMock()
            stack.callback(sys.modules.pop, name)
        for each in (*asked, "torchtitan.tools.utils"):
            stack.enter_context(patch(f"{each}.has_cuda_capability", lambda *_: True))
        yield


def size_of(model: Any) -> Size:
    attention = model.first_attention
    latent = not getattr(attention, "n_kv_heads", None)
    experts = [each.moe for each in model.layers if getattr(each, "moe", None) is not None]
    return Size(
        layers=len(model.layers),
        heads=attention.n_heads,
        kv_heads=attention.n_heads if latent else attention.n_kv_heads,
        experts=max((number_of_experts(each) for each in experts), default=0),
        tied=bool(model.enable_weight_tying),
        max_tokens=model.max_seq_len,
    )


def number_of_experts(moe: Any) -> int:
    return int(moe.num_experts)


def recipes_of(name: str) -> Iterator[tuple[str, Recipe]]:
    registry = importlib.import_module(f"torchtitan.models.{name}.config_registry")
    module = importlib.import_module(f"torchtitan.models.{name}")
    functions = {key: each for key, each in vars(registry).items() if is_recipe(key, each, registry)}
    for key, function in functions.items():
        converters: list[Any] = []
        with patch.object(module, "validate_converter_order", converters.extend):
            config = function()
        yield key, Recipe(module=name, settings=dict(settings_of(config, converters)))


def is_recipe(name: str, given: Any, registry: Any) -> bool:
    return (
        callable(given)
        and not name.startswith("_")
        and getattr(given, "__module__", "") == registry.__name__
        and str(getattr(given, "__annotations__", {}).get("return", "")).find("Trainer.Config") >= 0
    )


def settings_of(config: Any, converters: list[Any]) -> Iterator[tuple[str, Any]]:
    for section in ("training", "parallelism", "compile"):
        given = getattr(config, section)
        for each in dataclasses.fields(given):
            value = getattr(given, each.name)
            default = each.default if each.default is not dataclasses.MISSING else each.default_factory()
            if value != default and isinstance(value, (*PLAIN, list)):
                yield f"{section}.{each.name}", value
    policy = config.activation_checkpoint
    owner = type(policy).__qualname__.partition(".")[0]
    yield "activation_checkpoint.mode", "none" if policy is None else POLICIES[owner]
    yield "model.flavor", config.model_spec.flavor
    yield "loss.kind", type(config.loss).__qualname__.partition(".")[0]
    group = config.optimizer.param_groups[0]
    yield "optimizer.name", group.optimizer_name
    yield "optimizer.lr", group.optimizer_kwargs["lr"]
    if converters:
        yield "model.converters", [type(each).__qualname__.partition(".")[0] for each in converters]
        for each in converters:
            if hasattr(each, "recipe_name"):
                yield "model.float8_recipe", each.recipe_name
            if hasattr(each, "rank"):
                yield "model.lora_rank", each.rank


def written() -> bytes:
    """The file as it stands in the project."""
    return msgspec.json.format(msgspec.json.encode(shipped(), order="sorted"), indent=1) + b"\n"


if __name__ == "__main__":
    FILE.write_bytes(written())
