"""The tools whose files are read, each loaded when first asked for. Knows their names only."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Final, cast

from escala.foreign.readings import Tool

TOOLS: Final = (
    "escala",
    "deepspeed",
    "accelerate",
    "llamafactory",
    "axolotl",
    "trl",
    "transformers",
    "megatron",
    "megatron_bridge",
    "maxtext",
    "automodel",
    "torchrun",
    "script",
    "slurm",
    "environment",
    "torchtitan",
    "torchtune",
    "lightning",
    "kubernetes",
    "skypilot",
    "tensorflow",
    "flower",
)
"""In the order in which they are asked; of equal scores the first counts."""
CARRIERS: Final = frozenset(("slurm", "kubernetes", "skypilot"))
"""Tools whose files carry scripts for others: schedulers and clouds."""


@cache
def tool_of(name: str) -> Tool:
    """The module that reads a tool's files."""
    return cast(Tool, import_module(f"escala.foreign.{name}.reading"))


def tools() -> Mapping[str, Tool]:
    """All of them by name."""
    return {name: tool_of(name) for name in TOOLS}
