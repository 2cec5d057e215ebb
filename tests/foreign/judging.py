"""Texts in a folder, and the rules that find something in them."""

from collections.abc import Mapping
from pathlib import Path

from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job

Texts = Mapping[str, str]


def job_of(folder: Path, texts: Texts, versions: Mapping[str, str] | None = None, **given: Value) -> Job:
    """The job of some files; the first is named, the others are there if it names them."""
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return read_job([str(folder / next(iter(texts)))], given, versions or {})


def lines_of(job: Job, rule: str) -> list[int]:
    """The lines in which a rule found something."""
    return [each.place.line for each in job.findings if each.rule == rule and each.place is not None]


def values_of(job: Job) -> dict[str, Value]:
    """The facts of a job."""
    return {name: each.value for name, each in job.facts.items()}
