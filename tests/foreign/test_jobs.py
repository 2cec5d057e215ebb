"""Files of one job: named files are read too, and a file that is not there is found where it is named."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.foreign import jobs
from escala.foreign.documents import Document
from escala.foreign.facts import fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job, read_job
from escala.foreign.places import Place
from escala.foreign.readings import Reading, Reference, Role, VersionIs
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


@dataclass(frozen=True)
class Knows:
    """A tool that reads scripts which name it; `carried` is what it gives others to read."""

    NAME: str
    carries: bool = False
    role: Role = Role.LAUNCH
    TITLE: str = "a tool"

    def score(self, document: Document) -> int:
        return 50 if self.NAME in document.text else 0

    def read(self, document: Document, _: str | None) -> Reading:
        place = document.lines.place(0)
        inside = (replace(document, text="torchrun in it", name="carried"),) if self.carries else ()
        return Reading(
            tool=self.NAME,
            title=self.TITLE,
            version="1",
            version_is=VersionIs.ASSUMED,
            role=self.role,
            document=document,
            facts=(fact("nodes", 2 if self.carries else 3, place, self.NAME),),
            inside=inside,
        )

    def rules(self, _: Job, __: Reading) -> list[Finding]:
        return []


@pytest.fixture
def knowing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tools: torchrun and accelerate read scripts, slurm carries one of torchrun."""
    several = {
        "slurm": Knows("slurm", carries=True, role=Role.ALLOCATION),
        "torchrun": Knows("torchrun"),
        "accelerate": Knows("accelerate"),
    }
    monkeypatch.setattr(jobs, "TOOLS", tuple(several))
    monkeypatch.setattr(jobs, "candidates", lambda _: list(several))
    monkeypatch.setattr(jobs, "tool_of", several.__getitem__)


def read_by(folder: Path, name: str, text: str) -> list[tuple[str, str]]:
    (folder / name).write_text(text)
    return [(each.tool, each.document.name) for each in read_job([str(folder / name)], {}, {}).readings]


@pytest.mark.usefixtures("knowing")
def test_a_script_is_read_by_every_tool_that_knows_it_and_a_tree_by_one(tmp_path: Path) -> None:
    assert read_by(tmp_path, "run.sh", "accelerate torchrun") == [
        ("torchrun", "run.sh"),
        ("accelerate", "run.sh"),
    ]
    assert read_by(tmp_path, "run.yaml", "accelerate: torchrun") == [("torchrun", "run.yaml")]


@pytest.mark.usefixtures("knowing")
def test_others_read_what_a_schedulers_file_carries_not_the_file(tmp_path: Path) -> None:
    assert read_by(tmp_path, "run.sh", "slurm accelerate") == [("torchrun", "carried"), ("slurm", "run.sh")]


@pytest.mark.usefixtures("knowing")
def test_what_a_scheduler_grants_is_no_contradiction_and_counts_last(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("slurm")

    job = read_job([str(tmp_path / "run.sh")], {}, {})

    assert job.value("nodes") == 3
    assert job.findings == ()


def test_devices_are_nodes_times_devices_of_each_where_nobody_says_their_number(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")

    assert (
        read_job([str(tmp_path / "a.json")], {"nodes": 2, "devices_per_node": 8}, {}).value("devices") == 16
    )


@pytest.mark.parametrize("name", ["9" * 5000 + ".json", "a\\u0000b.json"])
def test_a_name_that_no_file_can_have_is_one_that_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.json").write_text(f'{{"per_device_train_batch_size": 1, "deepspeed": "{name}"}}')

    job = read_job([str(tmp_path / "a.json")], {}, {})

    assert job.value("micro_batch") == 1
    assert not any(reading.tool == "deepspeed" for reading in job.readings)
