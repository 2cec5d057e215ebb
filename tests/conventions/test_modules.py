"""What every module keeps to: one sitting long, and light to import."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST_LINES = 450
ENTRIES = ("escala", "escala.model", "escala.catalog", "escala.planning", "escala.formats", "escala.cli.app")
HEAVY = ("flwr", "pandas", "scipy", "tensorflow", "torch", "transformers")


def test_no_module_is_too_long_for_one_sitting():
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in ROOT.glob("src/**/*.py")}

    assert {path: count for path, count in lines.items() if count > LONGEST_LINES} == {}


@pytest.mark.parametrize("module", ENTRIES)
def test_importing_loads_no_heavy_library(module: str):
    script = f"import sys, {module}; print(*sorted(sys.modules.keys() & set({HEAVY!r})))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
