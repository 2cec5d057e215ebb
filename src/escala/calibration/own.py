"""Own runs on top of the published fit: what they make of numbers, how far off each is, before and after.

The machinery of the published fit: linearised rounds, robust loss, the posterior of that fit as the prior.
Knows runs as a plan with measured seconds; reads no file.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala.calibration.own_list import OwnFree, own_numbers
from escala.calibration.sample import regime_weight
from escala.calibration.scoring import question
from escala.calibration.solving import LeftOut, Solved, solve
from escala.calibration.widths import COVERAGE
from escala.model.columns import F64, I64, Bool
from escala.model.estimate import time_of
from escala.model.interval import Regime, regime
from escala.model.own import OwnFactor, OwnSpread
from escala.model.own_numbers import without_own
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.steptime import StepTime

FEWEST_CONFIGURATIONS: Final = 3  # from which on leaving one out says something
_NOTHING: Final = 1e-9  # of a logarithm: rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRun:
    """One measured time: seconds of the step, or of the part of it that some terms make.

    `trust` is what it counts at most. A run has one time of its step, and may have times of parts beside it.
    """

    name: str
    problem: Problem
    plan: Plan
    seconds: float
    part: str = ""
    terms: tuple[str, ...] = ()
    trust: float = 1.0

    @property
    def is_step(self) -> bool:
        """Whether it is the time of the whole step."""
        return not self.terms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnSample:
    """Own runs, in batches that ask the same question.

    `configurations` are the positions of all times of each, and `steps` of those of its step.
    """

    runs: tuple[OwnRun, ...]
    batches: tuple[I64, ...]
    problems: tuple[Problem, ...]
    plans: tuple[Plans, ...]
    configurations: tuple[I64, ...]
    steps: tuple[I64, ...]
    log_published: F64
    weights: F64

    @classmethod
    def of(cls, given: Sequence[OwnRun]) -> "OwnSample":
        """The runs without what earlier calibrations did to their problems; a configuration has one vote."""
        runs = tuple(replace(each, problem=without_own(each.problem)) for each in given)
        asked = [_configuration(each) for each in runs]
        configurations = _alike(asked)
        batches = _alike([question(problem) for problem, _ in asked])
        is_step = np.array([each.is_step for each in runs])
        steps = tuple(rows[is_step[rows]] for rows in configurations)
        repeats = {asked[rows[0]]: len(rows) for rows in steps}
        weights = [
            each.trust * regime_weight(Regime(regime_of(each))) / repeats[key]
            for each, key in zip(runs, asked, strict=True)
        ]
        return cls(
            runs=runs,
            batches=batches,
            problems=tuple(runs[rows[0]].problem for rows in batches),
            plans=tuple(Plans.of([runs[i].plan for i in rows]) for rows in batches),
            configurations=configurations,
            steps=steps,
            log_published=np.log([each.seconds for each in runs]),
            weights=np.array(weights),
        )

    def __len__(self) -> int:
        """Number of measured times."""
        return len(self.runs)

    def log_seconds(self, batch: int, problem: Problem) -> F64:
        """Logarithm of the predicted seconds of a batch, each of its part, if this were its problem."""
        time, rows = time_of(problem, self.plans[batch]), self.batches[batch]
        seconds = [part_s(time, self.runs[row].terms)[i] for i, row in enumerate(rows)]
        return np.asarray(np.log(seconds), np.float64)


def part_s(time: StepTime, terms: Sequence[str]) -> F64:
    """Sum of the terms of a step, or the whole step where none is named. Shape: that of the terms."""
    return sum((getattr(time, name) for name in terms), np.zeros(1)) if terms else time.step_s


def regime_of(run: OwnRun) -> int:
    """The regime of a run's plan."""
    return int(regime(run.problem, Plans.of(run.plan))[0])


def _configuration(run: OwnRun) -> tuple[Problem, Plan]:
    """What repeats have in common; how long they were meant to go on is not part of it."""
    workload = replace(run.problem.workload, total_tokens=None)
    return replace(run.problem, workload=workload), run.plan


def _alike(keys: Sequence[Hashable]) -> tuple[I64, ...]:
    """Positions of equal keys, in the order in which each comes first."""
    found: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return tuple(np.array(rows, np.int64) for rows in found.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnFit:
    """The result: numbers with their posterior, and log errors of every time before, after and left out.

    `outside` is None where fewer configurations than FEWEST_CONFIGURATIONS ran. `pulls` says by how much each
    configuration moved each number: value with it - value without. Shape: (configurations, numbers).
    """

    sample: OwnSample
    free: tuple[OwnFree, ...]
    solved: Solved
    before: F64
    outside: F64 | None
    pulls: F64

    @property
    def factors(self) -> tuple[OwnFactor, ...]:
        """The factor on every number that the runs inform."""
        found = self.solved.posterior
        return tuple(
            OwnFactor(
                of=each.number.of,
                name=each.number.name,
                field=each.number.field,
                accelerator=each.number.accelerator,
                before=each.before,
                factor=float(np.exp(found.values[j])),
                sd=float(found.sd[j]),
                share=max(float(found.share[j]), 0.0),
                is_measured=each.is_measured,
            )
            for j, each in enumerate(self.free)
            if abs(found.values[j]) > _NOTHING
        )

    @property
    def spreads(self) -> tuple[OwnSpread, ...]:
        """For each engine, device and regime the 80 % quantile of its left-out errors."""
        if self.outside is None:
            return ()
        errors: dict[tuple[str, str, str], list[float]] = {}
        for rows in self.sample.steps:
            run = self.sample.runs[rows[0]]
            kind = Regime(regime_of(run)).name.lower()
            stack = (run.problem.engine.name, run.problem.accelerator.name, kind)
            errors.setdefault(stack, []).append(float(np.abs(self.outside[rows]).mean()))
        return tuple(
            OwnSpread(
                engine=engine,
                accelerator=device,
                regime=kind,
                configurations=len(found),
                error=float(np.quantile(found, COVERAGE, method="higher")),
            )
            for (engine, device, kind), found in sorted(errors.items())
        )


def calibrate(given: Sequence[OwnRun], progress: Callable[[str, float], None]) -> OwnFit:
    """Most probable factors on the numbers of the runs, then every configuration left out in turn."""
    sample = OwnSample.of(given)
    return fit_own(sample, own_numbers(sample.problems), progress)


def fit_own(sample: OwnSample, free: Sequence[OwnFree], progress: Callable[[str, float], None]) -> OwnFit:
    """The same with numbers and priors of the caller's choice."""
    ends = np.array([each.low for each in free]), np.array([each.high for each in free])
    solved = solve(sample, free, np.array([each.sd for each in free]), progress, ends)
    before = np.empty(len(sample))
    for k, problem in enumerate(sample.problems):
        before[sample.batches[k]] = sample.log_seconds(k, problem) - sample.log_published[sample.batches[k]]
    left = [(rows, solved.without(_marked(rows, len(sample)))) for rows in sample.configurations]
    values = solved.posterior.values
    return OwnFit(
        sample=sample,
        free=tuple(free),
        solved=solved,
        before=before,
        outside=_outside(left, len(sample)) if len(left) >= FEWEST_CONFIGURATIONS else None,
        pulls=np.array([values - others.values for _, others in left]).reshape(len(left), len(free)),
    )


def _marked(rows: I64, count: int) -> Bool:
    marked = np.zeros(count, np.bool_)
    marked[rows] = True
    return marked


def _outside(left: Sequence[tuple[I64, LeftOut]], count: int) -> F64:
    """The log error of each time under the values that the other configurations give."""
    found = np.empty(count)
    for rows, others in left:
        found[rows] = others.errors[rows]
    return found
