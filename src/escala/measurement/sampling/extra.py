"""Refusal where sampling cannot work: without its libraries, or on another system. Loads none of them."""

import importlib.util
import sys
from typing import Final

from escala.errors import InvalidInput, MissingExtra

LIBRARIES: Final = ("psutil", "prometheus_client")
INSTALL: Final = "pip install 'escala[watch]'"


def require_libraries(verb: str) -> None:
    """Refuse where a library of the extra is not installed, with the command that installs it."""
    for name in LIBRARIES:
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(f"`escala {verb}` needs {name}, which is not installed: {INSTALL}")


def require_linux(verb: str) -> None:
    """Refuse other systems."""
    if sys.platform != "linux":
        raise InvalidInput(f"`escala {verb}` runs on Linux alone; use `escala record` on the logs of a run")
