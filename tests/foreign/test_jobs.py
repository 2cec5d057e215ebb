"""Files of one job: named files are read too, and a file that is not there is found where it is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.foreign import jobs
from escala.foreign.jobs import read_job
from escala.foreign.places import Place
from escala.foreign.readings import Reading, Reference
from escala.foreign.tools import tool_of


@pytest.fixture
def naming(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's reader, for files that name others.json as a file that they need."""
    tool = tool_of("deepspeed")
    read = tool.read

    def read_with_reference(document: object, version: str | None) -> Reading:
        reading: Reading = read(document, version)  # type: ignore[arg-type]
        place = Place(file=reading.document.file, line=1)
        return replace(reading, references=(Reference(file="other.json", place=place, said="deepspeed"),))

    monkeypatch.setattr(tool, "read", read_with_reference)


@pytest.mark.usefixtures("naming")
def test_a_named_file_beside_it_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"train_batch_size": 4}')
    (tmp_path / "other.json").write_text('{"train_batch_size": 8}')

    job = read_job([str(tmp_path / "a.json")], {}, {})

    assert [Path(reading.document.file).name for reading in job.readings] == ["a.json", "other.json"]
    assert [each.rule for each in job.findings] == ["contradiction"]


@pytest.mark.usefixtures("naming")
def test_a_named_file_that_is_missing_is_found_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"train_batch_size": 4}')

    job = read_job([str(tmp_path / "a.json")], {}, {})

    assert [each.rule for each in job.findings] == ["file-not-there"]


def test_a_file_of_no_tool_stays_unread(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"colour": "blue"}')

    job = read_job([str(tmp_path / "a.json")], {}, {})

    assert [document.name for document in job.unread] == ["a.json"]
    assert job.readings == ()


def test_a_version_of_no_tool_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")

    with pytest.raises(InvalidInput, match="did you mean deepspeed"):
        read_job([str(tmp_path / "a.json")], {}, {"deepsped": "1"})


def test_what_the_command_line_says_counts_before_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"train_batch_size": 4}')

    job = read_job([str(tmp_path / "a.json")], {"global_batch": 16}, {})

    assert job.value("global_batch") == 16
    assert job.facts["global_batch"].place.file == jobs.COMMAND_LINE
