"""Runs a simulation that a person asks for and writes its files: rounds, document, page. No arithmetic."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from escala.errors import InvalidInput
from escala.federated.reading import read_scenario
from escala.federated.simulate import (
    EVENTS,
    cases_of,
    event_rounds,
    rounds_by_default,
    run,
    selection_of,
    simulation,
)
from escala.federated.summary import Course, Simulated, Simulation
from escala.measurement.bench.request import make_writable
from escala.progress import Progress
from escala.report.federated_page import simulation_page
from escala.wholefile import write_together

RESULT, PAGE = "simulation.json", "simulation.html"
INTERRUPTED: Final = "interrupted before the first round was done; nothing to show"


def simulated(path: str, given: Mapping[str, Any], progress: Progress) -> tuple[Simulation, list[str]]:
    """The document of what the options of `escala federate simulate` ask for, and the files it left."""
    scenario, folder = read_scenario(path), Path(given["out"])
    policies = policies_of(given["policy"], given["compare"])
    cases = cases_of(scenario, policies, given["seed"], folder)
    count = given["rounds"] or rounds_by_default(scenario)
    make_writable(folder, "--out")
    runs: dict[str, tuple[Simulated, Course]] = {}
    is_interrupted = False
    for case in cases:
        result, course, is_interrupted = run(case, EVENTS, event_rounds(case, count), count, progress)
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
