"""Jobs without files: facts as a tool would read them, on a cluster and a network of the catalog."""

from collections.abc import Callable
from pathlib import Path

import pytest

from escala.catalog.clusters import cluster_for
from escala.checking.judging import Judged, judged
from escala.checking.subjects import Subject, subject_of
from escala.foreign.documents import Document, Syntax, parsed
from escala.foreign.facts import Value, fact
from escala.foreign.jobs import Job
from escala.foreign.places import Place
from escala.foreign.readings import Reading, Role, VersionIs, said_of


def reading_of(document: Document, tool: str, engine: str | None, **facts: Value) -> Reading:
    """A reading whose facts stand in the lines of a file, in their order."""
    said = [
        fact(name, value, Place(file=document.file, line=line), name)
        for line, (name, value) in enumerate(facts.items(), 1)
    ]
    return Reading(
        tool=tool,
        title=tool,
        version="1",
        version_is=VersionIs.ASSUMED,
        role=Role.CONFIG,
        document=document,
        facts=tuple(said),
        engine=engine,
    )


def job_of(engine: str | None = None, tool: str = "torchtitan", **facts: Value) -> Job:
    """A job that one file describes."""
    document = parsed("{}", "job.json", Syntax.JSON)[0]
    reading = reading_of(document, tool, engine, **facts)
    return Job(readings=(reading,), facts=said_of(reading.facts))


@pytest.fixture
def subject() -> Callable[..., Subject]:
    """A job on a cluster; `gpu`, `gpus` and `network` name the machine."""

    def build(
        gpu: str = "h100-sxm",
        gpus: int = 8,
        network: str | None = None,
        engine: str | None = "pytorch",
        tool: str = "torchtitan",
        **facts: Value,
    ) -> Subject:
        job = job_of(engine, tool, **facts)
        return subject_of(job, cluster_for(gpu, gpus, network=network), None)

    return build


@pytest.fixture
def judge(subject: Callable[..., Subject]) -> Callable[..., Judged]:
    """The prediction of such a job."""

    def build(**given: object) -> Judged:
        found = subject(**given)
        assert found.problem is not None, found.missing
        assert found.plan is not None
        return judged(found.problem, found.plan, found.second_copy)

    return build


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a file and gives its path."""

    def build(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return build
