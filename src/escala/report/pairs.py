"""Runs beside their plans, as files: RUN:PLAN, a folder that holds both, or what `escala verify -o` wrote.

A run is a record of `escala record` or a profile of `escala profile`.

Knows where the two of a pair stand; predicts and fits nothing.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from escala import __version__
from escala.errors import InvalidInput, spoken
from escala.formats.files import read_keys
from escala.formats.record_keys import keys_of, table_of
from escala.inputs import refuse_locked
from escala.measurement.paired import Paired
from escala.measurement.profile.record import PROFILE_SCHEMA, Profile
from escala.measurement.runrecord import RUN_SCHEMA, RunRecord
from escala.model.own_numbers import without_own
from escala.report.planfile import SCHEMA as PLAN_SCHEMA
from escala.report.planfile import PlanFile, plan_document, plan_file_of
from escala.report.profile_view import read_profile
from escala.report.runfile import read_run, run_of
from escala.report.saved import chosen_plan
from escala.wholefile import write_whole

PAIR_SCHEMA: Final = "escala/verified-run@1"
MEASURED: Final = (RUN_SCHEMA, PROFILE_SCHEMA)
WAYS: Final = "give RUN:PLAN, a folder with a run.json and a plan.json, or what `escala verify -o` wrote"
MOST_FILES: Final = 1000  # looked at in one folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The runs with their plans, and what tells these contents from others."""

    pairs: tuple[Paired, ...]
    digest: str


def write_pair(run: RunRecord, file: PlanFile, row: int, path: str) -> None:
    """Write a run and its plan as one file."""
    document = {
        "schema": PAIR_SCHEMA,
        "escala": __version__,
        "run": keys_of(run),
        "plan": plan_document(file, row),
    }
    write_whole(Path(path), msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def read_pairs(names: Sequence[str]) -> Pairs:
    """Every run that is named, with its plan."""
    found = [_named(name) for name in names]
    contents = sorted(hashlib.sha256(_content(each)).hexdigest() for each in found)
    return Pairs(pairs=tuple(found), digest=hashlib.sha256("".join(contents).encode()).hexdigest()[:16])


def _content(given: Paired) -> bytes:
    """What was measured and under which plan, without names of files."""
    problem, run = without_own(given.problem), {**keys_of(given.run), "sources": []}
    asked = [keys_of(each) for each in (given.plan, problem.workload, problem.cluster)]
    return msgspec.json.encode([run, problem.engine.name, *asked])


def _named(name: str) -> Paired:
    path = Path(name)
    if path.is_dir():
        return _in_folder(path)
    if path.is_file():
        return _one_file(name)
    for run, plan in _halves(name):
        file, row = chosen_plan(plan)
        return _paired(name, _measured(run), file, row)
    raise InvalidInput(f"{name} does not exist; {WAYS}")


def _halves(name: str) -> Iterator[tuple[str, str]]:
    """Run and plan around a colon before which a file is named; a drive has one as well."""
    places = [place for place, letter in enumerate(name) if letter == ":"]
    yield from ((name[:at], name[at + 1 :]) for at in places if Path(name[:at]).is_file())


def _one_file(name: str) -> Paired:
    keys = read_keys(Path(name))
    if keys.get("schema") in MEASURED:
        raise InvalidInput(f"{name} is a run without its plan; write {name}:plan.json, or {WAYS}")
    if keys.get("schema") != PAIR_SCHEMA:
        raise InvalidInput(f"{name}: schema is {spoken(keys.get('schema'))}, which is no run; {WAYS}")
    file = plan_file_of(_table(keys, "plan", name), f"{name}: plan")
    return _paired(name, run_of(_table(keys, "run", name), f"{name}: run"), file, file.recommended)


def _table(keys: Mapping[str, object], key: str, name: str) -> Mapping[str, Any]:
    return table_of(keys.get(key), f"{name}: {key}")


def _in_folder(folder: Path) -> Paired:
    """The run and the plan of a folder, known by their schema."""
    refuse_locked(folder)
    files = [(path, _schema(path)) for path in sorted(folder.glob("*.json"))[:MOST_FILES]]
    run = _only(folder, "run or profile", [path for path, schema in files if schema in MEASURED])
    plan = _only(folder, "plan", [path for path, schema in files if schema == PLAN_SCHEMA])
    file, row = chosen_plan(str(plan))
    return _paired(str(folder), _measured(str(run)), file, row)


def _only(folder: Path, what: str, found: Sequence[Path]) -> Path:
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise InvalidInput(f"{folder} has to hold one {what} and holds {names}; write RUN:PLAN instead")
    return found[0]


def _measured(path: str) -> RunRecord | Profile:
    """A profile, or a record of a run."""
    if _schema(Path(path)) == PROFILE_SCHEMA:
        return read_profile(path)
    return read_run(path)


def _schema(path: Path) -> str:
    """The schema that a file names; empty where it is none of ours."""
    try:
        return str(read_keys(path).get("schema"))
    except InvalidInput:
        return ""


def _paired(name: str, run: RunRecord | Profile, file: PlanFile, row: int) -> Paired:
    return Paired(name=name, run=run, problem=file.problem, plan=file.plans[row])
