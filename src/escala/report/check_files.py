"""Another plan for a checked job as files of the tool that the job already uses. Decides nothing."""

from collections.abc import Iterator, Mapping
from typing import Final

from escala.checking.judging import Judged
from escala.emitting import targets
from escala.errors import InvalidInput
from escala.foreign.jobs import Job
from escala.foreign.orders import Writer, lacking
from escala.foreign.readings import Role
from escala.report.emit_order import Wishes, order_of
from escala.report.planfile import PlanFile

AROUND: Final = (Role.LAUNCH, Role.ALLOCATION)


def files_of(job: Job, wanted: Judged) -> tuple[str, Mapping[str, str]]:
    """The target's title and its files by name; empty where no tool of the job can express the plan."""
    try:
        order, _ = order_of(PlanFile(problem=wanted.problem, plans=(wanted.plan,)), 0, _wishes(job))
    except InvalidInput:
        return "", {}
    for writer in _writers(job):
        if not lacking(writer.TARGET, order):
            title = f"{writer.TARGET.title} {writer.TARGET.version}"
            return title, {each.name: each.text for each in writer.write(order)}
    return "", {}


def _writers(job: Job) -> Iterator[Writer]:
    """Writers of the tools that the files are for, in their order; not of what launches or places them."""
    for reading in (each for each in job.readings if each.role not in AROUND):
        yield from targets.writers_in(reading.tool)


def _wishes(job: Job) -> Wishes:
    """What no plan knows and the files say."""
    model, rate, steps = job.value("model"), job.value("learning_rate"), job.count("steps")
    return Wishes(
        model=str(model) if model is not None else None,
        learning_rate=float(rate) if isinstance(rate, int | float) and rate > 0 else None,
        steps=steps if steps is not None and steps > 0 else None,
    )
