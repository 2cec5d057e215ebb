"""Groups of tools: every tool has its test and one group, and every version is pinned."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
GROUPS = sorted(FOLDER.joinpath("requirements").glob("*.txt"))
PINNED = re.compile(r"[\w.-]+(\[[\w,-]+\])?(==|>=|<)[\w.+!*<>=,-]+( ;.*)?")


def tools(group: Path) -> list[str]:
    first = group.read_text().partition("\n")[0]
    assert first.startswith("# tools: ")
    return first.removeprefix("# tools: ").split()


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.stem)
def test_every_tool_of_a_group_has_its_test(group: Path) -> None:
    files = [FOLDER / f"test_{tool.replace('-', '_')}.py" for tool in tools(group)]

    assert [file.name for file in files if not file.is_file()] == []


def test_every_test_belongs_to_one_group() -> None:
    named = sorted(f"test_{tool.replace('-', '_')}.py" for group in GROUPS for tool in tools(group))
    others = [file for file in FOLDER.glob("test_*.py") if file != Path(__file__)]
    asking = sorted(file.name for file in others if "mark.oracle" in file.read_text())

    assert named == asking


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.stem)
def test_every_package_has_a_version(group: Path) -> None:
    lines = [line.strip() for line in group.read_text().splitlines()]
    packages = [line for line in lines if line and not line.startswith(("#", "-"))]

    assert [line for line in packages if not PINNED.match(line)] == []
