"""Decision records are numbered without gaps and say what gets worse."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))


def test_numbers_are_contiguous_from_one():
    numbers = [int(path.name[:4]) for path in RECORDS]

    assert numbers == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_record_has_its_number_and_its_parts(path: Path):
    text = path.read_text()

    assert text.startswith(f"# {int(path.name[:4])}. ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert "Worse:" in text
