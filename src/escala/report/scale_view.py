"""A scaling study from request to document: the jobs of its points, which of them are done, what came of all.

Measures and predicts nothing itself.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from escala.errors import InvalidInput, spoken
from escala.measurement.bench.device import present_kind
from escala.measurement.bench.host import host_facts, usable_cores
from escala.measurement.bench.place import refuse_elsewhere
from escala.measurement.bench.request import checked_kind, make_writable
from escala.measurement.job.request import require_torch
from escala.planning.resizing import Case, case_of
from escala.report.planfile import PlanFile, plan_document
from escala.report.saved import chosen_plan
from escala.report.scale_page import scale_page
from escala.report.train_view import JOB, RESULT, Asked, job_bytes, refuse_unrunnable, save_job
from escala.report.under import under
from escala.training.conclude import Trained
from escala.training.job import Choices, Job, Saving
from escala.training.launch import start
from escala.training.launch.lock import only_run
from escala.training.launch.start import environment
from escala.training.study import Scaled, scaled
from escala.wholefile import write_together

RESULT_FILE, PAGE_FILE = "scale.json", "scale.html"
WORK: Final = "escala.cli.scale:ranked"
THREADS: Final = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A checked request: each point with its job, and whether the batch grows with the devices."""

    folder: Path
    cases: tuple[Case, ...]
    jobs: tuple[Asked, ...]
    is_weak: bool


def study_of(plan: str | None, devices: str, given: Mapping[str, Any]) -> Study:
    """What the options of `escala scale` ask for."""
    file, row = chosen_plan(plan)
    file = replace(file, problem=under(file.problem, given["calibration"]))
    chosen, folder = file.plans[row], Path(given["out"])
    refuse_elsewhere(file.problem.cluster)
    if chosen.local_steps > 1:
        raise InvalidInput(
            "replicas with local steps agree outside the steps that are timed; plan without them"
        )
    cases = tuple(case_of(file.problem, chosen, count, is_weak=given["weak"]) for count in counts_of(devices))
    for each in cases:
        refuse_unrunnable(each.problem, each.plan)
    choices = Choices(
        steps=given["steps"],
        module=given["module"],
        data=given["data"],
        seed=given["seed"],
        device=checked_kind(given["device"]),
        saving=Saving(at_end=False),
    )
    jobs = tuple(_job(file, each, folder / f"devices-{each.devices}", choices) for each in cases)
    return Study(folder=folder, cases=cases, jobs=jobs, is_weak=given["weak"])


def counts_of(text: str) -> tuple[int, ...]:
    """Numbers of devices of a comma-separated list, in rising order."""
    words = [each.strip() for each in text.split(",") if each.strip()]
    wrong = [each for each in words if not (each.isascii() and each.isdecimal() and int(each) > 0)]
    if wrong or not words:
        raise InvalidInput(f"--devices {spoken(text)} is no list of numbers; write for example 1,2,4")
    return tuple(sorted({int(each) for each in words}))


def _job(file: PlanFile, case: Case, folder: Path, choices: Choices) -> Asked:
    alone = replace(file, problem=case.problem, plans=(case.plan,), recommended=0, estimate={})
    job = Job(problem=case.problem, plan=case.plan, folder=folder, choices=choices)
    return Asked(job=job, plan_document=plan_document(alone, 0), restarts=0, resumes=True)


def prepare(study: Study) -> None:
    """The folder, and no points of another study in it."""
    require_torch()
    make_writable(study.folder, "--out")
    for each in study.jobs:
        path = each.job.folder / JOB
        if path.exists() and path.read_bytes() != job_bytes(each):
            raise InvalidInput(f"{path} is of another study; name another folder with -o")


def run(study: Study, tell: Callable[[str], None]) -> None:
    """Run the points that are not done, one after the other; Ctrl-C is a KeyboardInterrupt."""
    spent_s: list[float] = []
    with only_run(study.folder, tell), environment(_threads(study)):
        waiting = [each for each in study.jobs if finished(each) is None]
        for number, each in enumerate(waiting):
            began_s = time.monotonic()
            tell(_said(each, number, len(waiting), spent_s))
            _run_one(each, tell)
            spent_s.append(time.monotonic() - began_s)


def _said(asked: Asked, number: int, count: int, spent_s: Sequence[float]) -> str:
    left = (
        "" if not spent_s else f"; about {sum(spent_s) / len(spent_s) * (count - number):.0f} s left in all"
    )
    devices = asked.job.plan.devices
    return f"{devices} device{'s' if devices > 1 else ''}, point {number + 1} of {count}{left}"


def _run_one(asked: Asked, tell: Callable[[str], None]) -> None:
    """A point that was cut off begins anew."""
    folder = asked.job.folder
    shutil.rmtree(folder, ignore_errors=True)
    start(asked.job.plan.devices, WORK, (str(save_job(asked)),), folder=folder, restarts=0, tell=tell)


def _threads(study: Study) -> Mapping[str, str]:
    """Processors: as many threads a rank at every point, so that one more rank is one more device."""
    most = max(each.devices for each in study.cases)
    wanted = {THREADS: str(max(usable_cores(host_facts()) // most, 1))}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def finished(asked: Asked) -> Trained | None:
    """What a point came to; None where it was not run to its end."""
    path = asked.job.folder / RESULT
    if not path.is_file():
        return None
    found: Trained = msgspec.json.decode(path.read_bytes(), type=Trained)
    return found if found.steps == asked.job.choices.steps and found.run is not None else None


def result(study: Study) -> Scaled:
    """The document of the points that are done, up to the first that is not."""
    runs = []
    for each in study.jobs:
        done = finished(each)
        if done is None:
            break
        runs.append(done)
    return scaled(study.cases, runs, is_weak=study.is_weak, notes=tuple(_notes(study)))


def _notes(study: Study) -> Iterator[str]:
    most, cores = study.cases[-1].devices, usable_cores(host_facts())
    if present_kind(study.jobs[0].job.choices.device) == "cpu":
        if most > cores:
            yield f"{most} ranks shared {cores} cores: beyond {cores} there is no more hardware"
        yield f"{max(cores // most, 1)} thread(s) a rank at every point, unless {THREADS} says another number"


def save(study: Study, document: Scaled) -> list[str]:
    """Write the document and its page."""
    content = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    paths = [study.folder / RESULT_FILE, study.folder / PAGE_FILE]
    write_together(dict(zip(paths, (content, scale_page(document).encode()), strict=True)))
    return [str(each) for each in paths]
