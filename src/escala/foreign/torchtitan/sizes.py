"""The models and configurations that torchtitan ships: sizes that rules need, and names in the catalog.

`data/models/torchtitan.json` is written from torchtitan itself (tests/oracles/torchtitan_models.py).
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

Setting = str | int | float | bool | None


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes of one flavor; `kv_heads` is as many as `heads` where attention is latent."""

    layers: int
    heads: int
    kv_heads: int
    experts: int
    tied: bool
    max_tokens: int


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A configuration function: the module whose model it trains, and its settings that are no default."""

    module: str
    settings: dict[str, Setting | list[str]]


class Shipped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that one version ships."""

    version: str
    models: dict[str, dict[str, Size]]
    recipes: dict[str, Recipe]


NETWORKS: Final[Mapping[tuple[str, str], str]] = {
    ("llama3", "1B"): "llama-3.2-1b",
    ("llama3", "3B"): "llama-3.2-3b",
    ("llama3", "8B"): "llama-3.1-8b",
    ("llama3", "70B"): "llama-3.1-70b",
    ("llama3", "405B"): "llama-3.1-405b",
    ("qwen3", "0.6B"): "qwen3-0.6b",
    ("qwen3", "1.7B"): "qwen3-1.7b",
    ("qwen3", "4B"): "qwen3-4b",
    ("qwen3", "8B"): "qwen3-8b",
    ("qwen3", "14B"): "qwen3-14b",
    ("qwen3", "32B"): "qwen3-32b",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b",
    ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
    ("deepseek_v3", "16B"): "deepseek-v2-lite",
    ("deepseek_v3", "236B"): "deepseek-v2",
    ("deepseek_v3", "671B"): "deepseek-v3",
    ("gpt_oss", "20b"): "gpt-oss-20b",
    ("gpt_oss", "120b"): "gpt-oss-120b",
}
"""Flavors that the catalog has, by its names."""
OLDER_NETWORKS: Final[Mapping[tuple[str, str], str]] = {
    ("llama2", "7B"): "llama-2-7b",
    ("llama2", "13B"): "llama-2-13b",
    ("llama2", "70B"): "llama-2-70b",
}
"""Flavors that were shipped once (llama2: until 2024)."""
ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("qwen3_5", flavor): f"Qwen/Qwen3.5-{flavor}"
    for flavor in ("0.8B", "2B", "4B", "9B", "27B", "35B-A3B", "122B-A10B", "397B-A17B")
}
"""Flavors whose networks the catalog lacks, by their names on the hub."""
RENAMED: Final = {"qwen3_5_moe": "qwen3_5"}
"""Names of model modules in other versions."""


@cache
def shipped() -> Shipped:
    """What the current version ships."""
    content = files("escala.foreign").joinpath("data/models/torchtitan.json").read_bytes()
    return msgspec.json.decode(content, type=Shipped)


def size_of(module: str, flavor: str) -> Size | None:
    """The sizes of a flavor; None where this version does not ship it."""
    return shipped().models.get(RENAMED.get(module, module), {}).get(flavor)


def network_of(module: str, flavor: str) -> str | None:
    """The name of a flavor in the catalog, else on the hub."""
    key = (RENAMED.get(module, module), flavor)
    return NETWORKS.get(key) or OLDER_NETWORKS.get(key) or ELSEWHERE.get(key)


def flavor_of(network: str) -> tuple[str, str] | None:
    """Module and flavor of a network of the catalog."""
    return next((key for key, name in NETWORKS.items() if name == network), None)
