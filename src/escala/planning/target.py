"""Which global batch reaches a target soonest, with least energy or money: steps to the target times a step.

The target is what the tokens of the question reach at a reference batch. Knows the model's steps and a
critical batch; whether that holds for the job is the asker's to know.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from escala.errors import InvalidInput
from escala.model.estimate import Estimate
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.targets import Critical, samples_ratio
from escala.planning.search import TOLERANCE, Objective, search
from escala.planning.space import SpaceLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTarget:
    """One batch on its way to the target; times and their like with low and high ends.

    Ends hold the doubt of the step and of the critical batch, taken as independent.
    """

    batch: int
    plan: Plan
    step_s: float
    samples: tuple[float, float, float]
    steps: float
    duration_s: tuple[float, float, float]
    energy_j: float | None
    cost_usd: float | None

    @property
    def device_s(self) -> float:
        """Device-seconds to the target: duration * devices."""
        return self.duration_s[0] * self.plan.devices


def batches(low: int, high: int) -> Iterator[int]:
    """Doublings from the low end, and the high end."""
    while low < high:
        yield low
        low *= 2
    yield high


def by_batch(
    problem: Problem,
    wanted: Sequence[int],
    critical: Critical,
    limits: SpaceLimits | None = None,
    *,
    objective: Objective = Objective.TIME,
) -> list[ToTarget]:
    """Every batch that some plan fits, with what it needs to the target of the problem's batch and tokens."""
    if problem.workload.total_tokens is None:
        raise InvalidInput("a target needs a run: add --tokens, what the reference batch takes")
    found = []
    for batch in wanted:
        here = replace(problem, workload=replace(problem.workload, global_batch=batch))
        ranked = search(here, limits, objective=objective, top=1)
        if ranked.ranking is not None:
            found.append(to_target(here, ranked.ranking, critical, problem.workload.global_batch))
    return found


def to_target(problem: Problem, ranking: Estimate, critical: Critical, reference: int = 0) -> ToTarget:
    """What the first plan of an estimate needs to the target of the problem's tokens at a reference batch.

    A reference of 0 is the smallest batch, which takes the fewest samples.
    """
    work = problem.workload
    assert work.total_tokens is not None
    per_sample = 1.0 if work.network.is_image else float(work.sequence_tokens)
    batch = work.global_batch
    samples = _samples(work.total_tokens / per_sample, batch, reference, critical)
    steps, step_s = samples[0] / batch, float(ranking.step_s[0])
    foot = ranking.footprint
    return ToTarget(
        batch=batch,
        plan=ranking.plans[0],
        step_s=step_s,
        samples=samples,
        steps=steps,
        duration_s=_joined(samples, steps * step_s, float(ranking.interval_ratio[0])),
        energy_j=None if foot.energy_j is None else float(foot.energy_j[0]) * steps,
        cost_usd=None if foot.cost_usd is None else float(foot.cost_usd[0]) * steps,
    )


def _samples(planned: float, batch: int, reference: int, critical: Critical) -> tuple[float, float, float]:
    """Samples to the target: at the critical batch, and the fewest and most over its range."""
    size = np.array([float(batch)])
    value, *ends = (
        planned * float(samples_ratio(each, size, reference)[0]) for each in (critical.batch, *critical.ends)
    )
    return value, min(value, *ends), max(value, *ends)


def _joined(
    samples: tuple[float, float, float], duration_s: float, ratio: float
) -> tuple[float, float, float]:
    """Duration with both doubts: exp(-+ sqrt(ln(step)^2 + ln(samples)^2))."""
    value, low, high = samples
    down, up = (np.hypot(np.log(ratio), np.log(each)) for each in (value / low, high / value))
    return duration_s, float(duration_s * np.exp(-down)), float(duration_s * np.exp(up))


def best_of(given: Sequence[ToTarget], objective: Objective = Objective.TIME) -> ToTarget | None:
    """The smallest batch within 5 % of the best: fewer samples, and less at the mercy of the prior."""
    if not given:
        return None
    values = [_value(each, objective) for each in given]
    near = (
        each for each, value in zip(given, values, strict=True) if value <= min(values) * (1.0 + TOLERANCE)
    )
    return min(near, key=lambda each: each.batch)


def _value(given: ToTarget, objective: Objective) -> float:
    if objective is Objective.ENERGY and given.energy_j is not None:
        return given.energy_j
    return given.device_s if objective is Objective.COST else given.duration_s[0]
