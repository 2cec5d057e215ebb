"""Valid configurations of current versions are found without an error: precision counts as much as recall."""

from pathlib import Path

import pytest

from escala.checking.rules import findings_of
from escala.checking.subjects import subject_of
from escala.foreign.findings import Severity
from escala.foreign.jobs import read_job
from foreign.seeds import SMALL, VALID

FOLDER = Path(__file__).parent / "valid"


def errors_of(path: Path) -> list[tuple[str, str]]:
    job = read_job([str(path)], {}, {})
    found = [*job.findings, *findings_of(subject_of(job, None, None))]
    return [(each.rule, each.what) for each in found if each.severity is Severity.ERROR]


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.name)
def test_a_valid_file_has_no_error(path: Path) -> None:
    assert errors_of(path) == []


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.name)
def test_a_valid_file_is_read(path: Path) -> None:
    job = read_job([str(path)], {}, {})

    assert job.readings
    assert job.unread == ()


@pytest.mark.parametrize("name", [name for name in SMALL if name not in ("notes.md", "titan.toml")])
def test_small_files_have_no_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SMALL[name])

    assert errors_of(tmp_path / name) == []
