"""What a person adds to a question about reasons, from words to values."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from escala.catalog.batches import critical_batch, why_unknown
from escala.errors import InvalidInput, spoken
from escala.formats.bench_cluster import bench_of
from escala.formats.files import read_keys
from escala.model.feeding import samples_per_s
from escala.model.problem import Problem
from escala.model.targets import Critical
from escala.planning.isoefficiency import batch_keeping
from escala.planning.space import SpaceLimits
from escala.planning.target import batches, best_of, by_batch
from escala.report.planwords import objective_of
from escala.report.reasoning_view import Told
from escala.report.shared import tokens_per_step

RANGE: Final = re.compile(r"([\d,_]+)\.\.([\d,_]+)")
RUN: Final = "trained.json"
MOST_BATCH: Final = 1_000_000_000
MOST_RATE: Final = 1e12
LOADER: Final = "DataLoader"


def told_of(problem: Problem, limits: SpaceLimits, given: Mapping[str, Any]) -> tuple[Problem, Told]:
    """What was told, and the problem on the batch that reaches the target best, where batches were given."""
    kept = None if given["keep"] is None else batch_keeping(problem, given["keep"], limits)
    told = replace(curve_told(problem, given), kept=kept)
    return (problem, told) if given["batch"] is None else _on_best_batch(problem, limits, told, given)


def curve_told(problem: Problem, given: Mapping[str, Any]) -> Told:
    """What was told about a curve: the share to keep is its bound, no batch is sought for it."""
    critical, loader = given["critical_batch"], given["loader_samples_per_s"]
    return Told(
        keep=given["keep"],
        critical=None if critical is None else critical_of(critical),
        loader_samples_per_s=None
        if loader is None
        else loader_of(loader, is_image=problem.workload.network.is_image),
    )


def _on_best_batch(
    problem: Problem, limits: SpaceLimits, told: Told, given: Mapping[str, Any]
) -> tuple[Problem, Told]:
    low, high = range_of(given["batch"])
    if problem.workload.total_tokens is None:
        raise InvalidInput(
            "--batch ranks batches on the way to a target; add --tokens, what one of them takes"
        )
    reference = low if given["global_batch"] is None else problem.workload.global_batch
    asked = replace(problem, workload=replace(problem.workload, global_batch=reference))
    critical = told.critical or critical_batch(asked.workload)
    if critical is None:
        raise InvalidInput(f"no critical batch: {why_unknown(asked.workload)}; give --critical-batch")
    objective = objective_of(given["objective"])
    found = by_batch(asked, list(batches(low, high)), critical, limits, objective=objective)
    best = best_of(found, objective)
    if best is None:
        return asked, replace(told, critical=critical)
    here = replace(asked, workload=replace(asked.workload, global_batch=best.batch))
    tokens = best.steps * tokens_per_step(here)
    return replace(here, workload=replace(here.workload, total_tokens=tokens)), replace(
        told,
        critical=critical,
        targets=tuple(found),
        reference_batch=reference,
        reference_tokens=problem.workload.total_tokens,
    )


def range_of(text: str) -> tuple[int, int]:
    """The ends of LOW..HIGH."""
    match = RANGE.fullmatch(text.strip())
    ends = [] if match is None else [int(re.sub("[,_]", "", each) or 0) for each in match.groups()]
    if len(ends) != 2 or not 0 < ends[0] <= ends[1] <= MOST_BATCH:
        raise InvalidInput(f"--batch {spoken(text)} is no range of batches; write for example 256..4096")
    return ends[0], ends[1]


def critical_of(text: str) -> Critical:
    """A critical batch in samples, or the one that a run measured: its folder, or its trained.json."""
    path = Path(text)
    if path.is_dir() or path.is_file():
        return _measured(path / RUN if path.is_dir() else path)
    number = text.replace(",", "").replace("_", "")
    try:
        batch = float(number)
    except ValueError:
        batch = 0.0
    if not 0.0 < batch <= MOST_BATCH:
        raise InvalidInput(
            f"--critical-batch {spoken(text)} is neither a number of samples nor a run; "
            "write for example 4096, or the folder of `escala train --noise`"
        )
    return Critical(batch=batch, low=batch, high=batch, source="given", is_measured=True)


def loader_of(text: str, *, is_image: bool) -> float:
    """Samples in a second of one node's loader: given, or the fastest that a bench timed."""
    path = Path(text)
    if path.is_file():
        if not is_image:
            raise InvalidInput(f"the loader in {path} decodes images; give the samples a second of yours")
        return _benched(path)
    try:
        rate = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        rate = 0.0
    if not 0.0 < rate <= MOST_RATE:
        raise InvalidInput(
            f"--loader-samples-per-s {spoken(text)} is neither a rate nor a bench.json; give for example 6000"
        )
    return rate


def _benched(path: Path) -> float:
    timed = bench_of(read_keys(path), str(path)).timed
    found = [each.usual_s for each in timed if each.part == "loader" and each.name.startswith(LOADER)]
    if not found:
        raise InvalidInput(
            f"{path} timed no loader; bench again with torch installed, or give samples a second"
        )
    return samples_per_s(min(found))


def _measured(path: Path) -> Critical:
    keys = read_keys(path)
    batch, low, high = (keys.get(f"noise_{name}") for name in ("batch", "low", "high"))
    if not isinstance(batch, int | float):
        raise InvalidInput(f"{path} tells no noise of gradients; train with --noise, for 20 steps or more")
    return Critical(
        batch=float(batch),
        low=float(low) if isinstance(low, int | float) else 0.0,
        high=float(high) if isinstance(high, int | float) else None,
        source=f"gradient noise of {path}",
        is_measured=True,
    )
