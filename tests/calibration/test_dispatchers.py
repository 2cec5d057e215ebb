"""The best dispatcher of published layouts, by the script that prints the table."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from escala.calibration import Reading, read, read_rows

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "dispatchers.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dispatchers_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_best_dispatcher_is_found_in_four_fifths_of_the_published_cases(script: ModuleType):
    """Megatron-Bridge on AWS, Qwen3-30B on 64 H100 and DeepSeek-V3 on 256 B300: all-to-all or DeepEP."""
    rows = (row for row in read_rows().rows if "dispatcher" in row.tags)
    cases = script.cases(each for each in map(read, rows) if isinstance(each, Reading) and each.is_trusted)

    right = [script.best(ways, "predicted_s") is script.best(ways, "published_s") for ways in cases.values()]
    assert len(right) == 8
    assert sum(right) / len(right) >= 0.8
