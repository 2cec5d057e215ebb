"""The plans of the last run, kept in the user's cache so that they can be explained by number."""

import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from escala.errors import InvalidInput
from escala.planning.timeline import timeline
from escala.planning.trace import trace
from escala.report.limits import refuse_long_timeline
from escala.report.plan_view import plan_view
from escala.report.planfile import PlanFile, Searched, read_plan, write_last, write_plan
from escala.report.view import Asked
from escala.wholefile import write_whole

NAME: Final = "last-run.json"


def cache_folder() -> Path:
    """Where caches of this user belong on this system; ESCALA_CACHE_DIR names another place."""
    if own := os.environ.get("ESCALA_CACHE_DIR"):
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "escala" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "escala"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "escala"


def plan_file(asked: Asked) -> PlanFile:
    """The ranked plans of an answer as a file holds them."""
    found = asked.found
    assert found.ranking is not None
    assert found.recommended is not None
    ranking, chosen = found.ranking, found.recommended
    view = plan_view(asked.problem, ranking, chosen, rank=chosen + 1)
    return PlanFile(
        problem=asked.problem,
        plans=tuple(ranking.plans[row] for row in range(len(ranking))),
        recommended=chosen,
        searched=Searched(limits=asked.limits, objective=found.objective, tolerance=found.tolerance),
        estimate={
            "step_s": {"value": view.step_s.value, "low": view.step_s.low, "high": view.step_s.high},
            "mfu": view.mfu,
            "memory_bytes": view.memory_bytes.value,
            "verdict": view.verdict,
        },
    )


def save_plan(asked: Asked, path: str) -> None:
    """Write the recommended plan to a file."""
    write_plan(plan_file(asked), Path(path))


def save_timeline(file: PlanFile, row: int, path: str) -> None:
    """Write one step of a plan, task by task."""
    refuse_long_timeline(file.plans[row])
    write_whole(Path(path), msgspec.json.encode(trace(timeline(file.problem, file.plans[row]))))


def remember(asked: Asked) -> bool:
    """Keep the plans for `escala explain N`; False where the cache cannot be written."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_last(plan_file(asked), folder / NAME)
    except (OSError, RuntimeError, InvalidInput):  # no home, no right, no space: plan works all the same
        return False
    return True


def recall() -> PlanFile:
    """The plans of the last run."""
    path = cache_folder() / NAME
    if not path.is_file():
        raise InvalidInput("no plan was made yet; run `escala plan` first, or give a plan.json")
    return read_plan(path)


def chosen_plan(name: str | None) -> tuple[PlanFile, int]:
    """The plan that a person names: a file, the number of a plan of the last run, or its recommended one."""
    if name is not None and not name.strip():
        raise InvalidInput("no plan is named; give a plan.json or the number of a plan of the last run")
    if name is None or (name.isascii() and name.strip().isdecimal()):
        last = recall()
        return last, last.recommended if name is None else _by_number(last, int(name))
    file = read_plan(name)
    return file, file.recommended


def _by_number(last: PlanFile, number: int) -> int:
    if not 1 <= number <= len(last.plans):
        raise InvalidInput(f"there is no plan {number}; the last run has plans 1 to {len(last.plans)}")
    return number - 1
