"""Runs a simulation that a person asks for and writes its files: rounds, document, page. No arithmetic."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from escala.errors import InvalidInput
from escala.federated.reading import find_scenario
from escala.federated.roundrecord import Round
from escala.federated.simulate import (
    EVENTS,
    Case,
    cases_of,
    event_rounds,
    rounds_by_default,
    run,
    selection_of,
    simulation,
)
from escala.federated.simulate_learning import LEARNING, Asked, asked_task, learning_case
from escala.federated.summary import Course, Simulated, Simulation
from escala.measurement.bench.request import make_writable
from escala.progress import Progress
from escala.report.federated_page import simulation_page
from escala.wholefile import write_together

RESULT, PAGE = "simulation.json", "simulation.html"
INTERRUPTED: Final = "interrupted before the first round was done; nothing to show"


def simulated(
    path: str, given: Mapping[str, Any], progress: Progress, say: Callable[[str], None]
) -> tuple[Simulation, list[str]]:
    """The document of what the options of `escala federate simulate` ask for, and the files it left."""
    scenario, folder = find_scenario(path), Path(given["out"])
    policies = policies_of(given["policy"], given["compare"])
    cases = cases_of(scenario, policies, given["seed"], folder)
    count = given["rounds"] or rounds_by_default(scenario)
    prepared = preparing(given, count, say)
    make_writable(folder, "--out")
    runs: dict[str, tuple[Simulated, Course]] = {}
    is_interrupted = False
    for each in cases:
        case, rounds = prepared(each)
        scenario = case.scenario
        result, course, is_interrupted = run(case, given["engine"], rounds, count, progress)
        if result is not None and course is not None:
            runs[case.policy] = result, course
        if is_interrupted:
            break
    if not runs:
        raise KeyboardInterrupt(INTERRUPTED)
    seed = cases[0].scenario.training.seed
    results = [result for result, _ in runs.values()]
    document = simulation(scenario, seed, count, results, is_interrupted=is_interrupted)
    courses = {policy: course for policy, (_, course) in runs.items()}
    return document, [
        *(str(case.file) for case in cases if case.policy in runs),
        *save(document, courses, folder),
    ]


def preparing(
    given: Mapping[str, Any], count: int, say: Callable[[str], None]
) -> Callable[[Case], tuple[Case, Iterator[Round]]]:
    """What makes the rounds of a case: the virtual clock alone, or clients that learn on it."""
    if given["engine"] == EVENTS:
        named = [f"--{each}" for each in ("task", "net", "user") if given[each] is not None]
        if named:
            raise InvalidInput(f"{named[0]} is for --engine {LEARNING}; add it, or leave {named[0]} out")
        return lambda case: (case, event_rounds(case, count))
    if given["task"] is None:
        raise InvalidInput(f"--engine {LEARNING} needs --task: digits, package.module:function, or a file")
    asked = Asked(**{name: given[name] for name in ("task", "net", "label", "user", "deal")})
    task = asked_task(asked)
    return lambda case: learning_case(case, asked, task, count, say)


def policies_of(policy: str | None, compare: str | None) -> list[str]:
    """One policy, several that are compared, or none: that of the scenario."""
    if policy is not None and compare is not None:
        raise InvalidInput("--policy and --compare were given; --compare alone names the policies")
    if compare is None:
        return [] if policy is None else [str(selection_of(policy.strip().lower()))]
    names = list(dict.fromkeys(each.strip().lower() for each in compare.split(",") if each.strip()))
    if len(names) < 2:
        raise InvalidInput("--compare needs two policies or more; write for example uniform,energy")
    return [str(selection_of(each)) for each in names]


def save(document: Simulation, courses: Mapping[str, Course], folder: Path) -> list[str]:
    """Write the document and its page."""
    content = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    page = simulation_page(document, courses).encode()
    write_together({folder / RESULT: content, folder / PAGE: page})
    return [str(folder / RESULT), str(folder / PAGE)]
