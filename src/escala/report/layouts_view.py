"""A comparison of layouts from request to document: which plans, the ranks that try them, what came of each.

Judges nothing itself.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from escala import __version__
from escala.errors import InvalidInput, one_line
from escala.measurement.bench.request import checked_kind
from escala.measurement.job.request import require_torch
from escala.planning.simplicity import describe as title_of
from escala.report.planfile import PlanFile, plan_document
from escala.report.saved import chosen_plan
from escala.report.train_view import Asked, device_of, read_job, save_job
from escala.training.job import Choices, Job
from escala.training.launch import Place, RunFailed, start
from escala.training.layout_list import (
    DIFFERS,
    FAILED,
    LAYOUTS_SCHEMA,
    REFUSED,
    TOLERANCE,
    Compared,
    Layout,
    Verdict,
    layout_of,
    missing,
    usual,
)

WORK: Final = "escala.report.layouts_view:ranked"
LAYOUTS, VERDICTS = "layouts.json", "verdicts.jsonl"
STEPS: Final = 3
RANKS: Final = 2


def compared(plans: Sequence[str], given: Mapping[str, Any], tell: Callable[[str], None]) -> Compared:
    """The document of layouts that were tried on ranks of this machine, each beside one process."""
    require_torch()
    file, layouts = _asked(plans, given["devices"])
    module = given["module"] or file.problem.workload.network.name
    found = list(_refused(layouts, given["devices"]))
    for devices in sorted({each.plan.devices for each in missing(layouts, found)}):
        alike = [each for each in missing(layouts, found) if each.plan.devices == devices]
        found += _tried(file, alike, given, tell)
    order = [each.name for each in layouts]
    return Compared(
        schema=LAYOUTS_SCHEMA,
        escala=__version__,
        module=one_line(str(module)),
        steps=STEPS,
        tolerance=TOLERANCE,
        layouts=tuple(sorted(found, key=lambda each: order.index(each.name))),
        notes=("fp32, SGD, the same synthetic samples and seed, dropout off",),
    )


def is_wrong(given: Compared) -> bool:
    """Whether a layout differs or failed."""
    return any(each.verdict in (DIFFERS, FAILED) for each in given.layouts)


def _asked(plans: Sequence[str], devices: int | None) -> tuple[PlanFile, tuple[Layout, ...]]:
    """The plan that says what is trained, and the layouts: the plans that were given, or the usual ones."""
    chosen = [chosen_plan(each) for each in plans] or [chosen_plan(None)]
    file, row = chosen[0]
    first = replace(file, plans=(file.plans[row],), recommended=0, estimate={})
    if not plans:
        return first, usual(devices or RANKS)
    titles = [title_of(each.plans[place]) for each, place in chosen]
    names = [f"{name}: {title}" for name, title in zip(plans, titles, strict=True)]
    return first, tuple(
        layout_of(name, each.plans[place]) for name, (each, place) in zip(names, chosen, strict=True)
    )


def _refused(layouts: Sequence[Layout], devices: int | None) -> list[Verdict]:
    found = []
    for each in layouts:
        count, reason = each.plan.devices, ""
        if devices is not None and count > devices:
            reason = f"it needs {count} ranks, more than --devices {devices}"
        if each.plan.local_steps > 1:
            reason = "replicas with local steps train apart, so they differ from one process by design"
        if reason:
            found.append(Verdict(name=each.name, devices=count, verdict=REFUSED, reason=reason))
    return found


def _tried(
    file: PlanFile, layouts: Sequence[Layout], given: Mapping[str, Any], tell: Callable[[str], None]
) -> list[Verdict]:
    """Layouts on as many ranks: one job runs the list; one that stops it is told, the rest goes on."""
    folder = Path(tempfile.mkdtemp(prefix="escala-layouts-"))
    path = save_job(_job(file, folder, given))
    found: list[Verdict] = []
    while rest := missing(layouts, found):
        (folder / LAYOUTS).write_bytes(msgspec.json.encode(rest))
        tell(f"{len(rest)} layout{'s' if len(rest) > 1 else ''} on {rest[0].plan.devices} ranks")
        try:
            start(rest[0].plan.devices, WORK, (str(path),), folder=folder, restarts=0, tell=tell)
        except RunFailed as error:
            if error.exit_code == InvalidInput.exit_code:
                raise
            found = _read(folder)
            if stopped := missing(layouts, found):
                _tell(folder, _failed(stopped[0], str(error)))
        found = _read(folder)
    if not any(each.verdict == FAILED for each in found):
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _failed(layout: Layout, reason: str) -> Verdict:
    return Verdict(name=layout.name, devices=layout.plan.devices, verdict=FAILED, reason=one_line(reason))


def _job(file: PlanFile, folder: Path, given: Mapping[str, Any]) -> Asked:
    choices = Choices(
        steps=STEPS,
        module=given["module"],
        data="synthetic",
        seed=given["seed"],
        device=checked_kind(given["device"]),
        is_observed=False,
    )
    job = Job(problem=file.problem, plan=file.plans[0], folder=folder, choices=choices)
    return Asked(job=job, plan_document=plan_document(file, 0), restarts=0, resumes=True)


def _tell(folder: Path, verdict: Verdict) -> None:
    with (folder / VERDICTS).open("ab") as file:
        file.write(msgspec.json.encode(verdict) + b"\n")


def _read(folder: Path) -> list[Verdict]:
    path = folder / VERDICTS
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Verdict) for line in lines]


def ranked(place: Place, arguments: Sequence[str]) -> int:
    """The work of one rank: the layouts of a folder; the first rank writes their verdicts."""
    job, _ = read_job(arguments[0])
    layouts = msgspec.json.decode((job.folder / LAYOUTS).read_bytes(), type=list[Layout])
    device = device_of(replace(job, plan=layouts[0].plan), place)
    from escala.training.layouts import Trial, compare
    from escala.training.opened import opened
    from escala.training.session import joined

    source = opened(job, 1, lambda what, left_s: None).train
    with joined(place, device):
        for each in compare(Trial(job=job, source=source, steps=STEPS, device=device), layouts):
            if place.rank == 0:
                _tell(job.folder, each)
    return 0
