"""The files of one run, read: those that a person names, and the logs in the folders. Sums nothing up."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import walk
from os.path import isdir
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput, one_line
from escala.inputs import refuse_locked
from escala.measurement.logs.recognise import MLFLOW, STEPS, WATCH, recognise
from escala.measurement.logs.samples import Gathered
from escala.measurement.logs.source import Source
from escala.measurement.logs.watched import count_once, read_watched

MOST_FILES: Final = 1000
SUMMARIES: Final = ("metrics.prom", "run.json", "watch.json")
"""What `escala watch` writes beside its samples to sum them up."""
SAMPLES, OUTPUT = "samples.jsonl", "output.log"


@dataclass(frozen=True, slots=True)
class Folder:
    """The logs of a folder, its files that are none, and outputs of watched commands without a step."""

    logs: tuple[Gathered, ...]
    passed_over: int
    stepless: tuple[str, ...]


def gather(names: Sequence[str]) -> tuple[list[Gathered], tuple[str, ...]]:
    """The numbers of every file, and notes; a named file has to be a log, one that lies in a folder not."""
    files: list[Gathered] = []
    notes = []
    for name in names:
        if not name.strip():
            raise InvalidInput("a name is empty; name a log or a folder of logs")
        if isdir(name):
            found = _folder(Path(name))
            files += found.logs
            notes += _passed_over(found, name)
        else:
            files.append(read_file(Path(name)))
    seen = [Path(file.path).resolve() for file in files]
    if len(set(seen)) < len(seen):
        raise InvalidInput("a file is named twice; name each once")
    files = _one_mlflow(files)
    return files, (*notes, *count_once([file for file in files if file.tool == WATCH.tool]))


def read_file(path: Path) -> Gathered:
    """The numbers of one file."""
    source = Source(path)
    kind = recognise(source)
    found = Gathered(path=str(path), tool=kind.tool, is_utc=kind.is_utc, left_out=source.left_out)
    if kind is WATCH:
        read_watched(source, found)
    for sample in kind.read(source):
        found.add(sample)
    if not found.kept and not found.usage:
        why = ", ".join(found.left_out) or "none is printed"
        raise InvalidInput(f"{source} is of {kind.tool}, but has no number of a run ({why}); check the file")
    return found


def _folder(folder: Path) -> Folder:
    refuse_locked(folder)
    paths = _inside(folder)
    logs = tuple(each for each in map(_or_none, paths) if each is not None)
    if not logs:
        raise InvalidInput(
            f"no file of the folder {one_line(str(folder))} is a log of a known format; name the logs"
        )
    read = {log.path for log in logs}
    watched = {Path(log.path).parent for log in logs if log.tool == WATCH.tool}
    stepless = [each for each in paths if each.parent in watched and each.name == OUTPUT]
    silent = tuple(str(each) for each in stepless if str(each) not in read)
    return Folder(logs, len(paths) - len(logs) - len(silent), silent)


def _passed_over(found: Folder, name: str) -> list[str]:
    """Notes on the files of a folder that were not read."""
    others = [f"{found.passed_over} files of {one_line(name)} are no log"] if found.passed_over else []
    return [*others, *(f"no step was found in {one_line(each, 400)}; {STEPS}" for each in found.stepless)]


def _inside(folder: Path) -> list[Path]:
    paths: list[Path] = []
    for root, folders, names in walk(folder):
        folders.sort()
        own = SUMMARIES if SAMPLES in names else ()
        paths += [Path(root) / name for name in sorted(names) if name not in own]
        if len(paths) > MOST_FILES:
            raise InvalidInput(f"{folder} holds more than {MOST_FILES} files; name the logs")
    return paths


def _or_none(path: Path) -> Gathered | None:
    try:
        return read_file(path) if path.is_file() else None
    except InvalidInput:
        return None


def _one_mlflow(files: list[Gathered]) -> list[Gathered]:
    """The metrics of an MLflow run as one file; several runs are refused."""
    parts = [file for file in files if file.tool == MLFLOW.tool]
    folders = {file.path.rpartition("metrics")[0] for file in parts}
    if len(folders) > 1:
        raise InvalidInput(
            f"{len(folders)} MLflow runs are named, such as {min(folders)}; name the folder of one"
        )
    if len(parts) < 2:
        return files
    whole = Gathered(path=folders.pop(), tool=MLFLOW.tool, is_utc=True)
    for part in parts:
        whole.absorb(part)
    return [whole, *(file for file in files if file.tool != MLFLOW.tool)]
