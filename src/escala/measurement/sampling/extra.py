"""Refusal where the libraries of sampling are not installed. Loads none of them."""

import importlib.util
from typing import Final

from escala.errors import MissingExtra

LIBRARIES: Final = ("psutil", "prometheus_client")
INSTALL: Final = "pip install 'escala[watch]'"


def require_libraries(verb: str) -> None:
    """Refuse where a library of the extra is not installed, with the command that installs it."""
    for name in LIBRARIES:
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(f"`escala {verb}` needs {name}, which is not installed: {INSTALL}")
