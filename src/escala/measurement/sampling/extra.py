"""Refusal where the libraries of sampling are not installed. Loads none of them."""

import importlib.util
from typing import Final

from escala.errors import MissingExtra

INSTALL: Final = "pip install 'escala[watch]'"


def require_psutil(verb: str) -> None:
    """Refuse where psutil is not installed, with the command that installs it."""
    if importlib.util.find_spec("psutil") is None:
        raise MissingExtra(f"`escala {verb}` samples with psutil, which is not installed: {INSTALL}")
