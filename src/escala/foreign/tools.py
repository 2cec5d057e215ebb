"""The tools whose files are read, each loaded when first asked for. Knows their names only."""

from functools import cache
from importlib import import_module
from typing import Final, cast

from escala.foreign.readings import Tool
from escala.foreign.signs import SIGNS

TOOLS: Final = tuple(SIGNS)
"""In the order in which they are asked; of equal scores the first counts."""
CARRIERS: Final = frozenset(("slurm", "kubernetes", "skypilot"))
"""Tools whose files carry scripts for others: schedulers and clouds."""


@cache
def tool_of(name: str) -> Tool:
    """The module that reads a tool's files."""
    return cast(Tool, import_module(f"escala.foreign.{name}.reading"))
