"""Libraries of the extra `data`, imported where they are needed."""

from importlib import import_module
from typing import Any, Final

from escala.errors import MissingExtra

INSTALL: Final = "pip install 'escala[data]'"


def library(module: str, why: str) -> Any:
    """A module of an optional library, or the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtra(f"{why}, and {module.partition('.')[0]} is not installed: {INSTALL}") from None
