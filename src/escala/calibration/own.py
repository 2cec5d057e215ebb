"""Own runs on top of the published fit: what they make of numbers, how far off each is, before and after.

The machinery of the published fit: linearised rounds, robust loss, the posterior of that fit as the prior.
Knows runs as a plan with measured seconds; reads no file.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala.calibration.own_list import OwnFree, own_numbers
from escala.calibration.sample import regime_weight
from escala.calibration.solving import LeftOut, Solved, solve
from escala.calibration.widths import COVERAGE
from escala.model.columns import F64, I64, Bool
from escala.model.estimate import time_of
from escala.model.interval import Regime, regime
from escala.model.own import OwnFactor, OwnSpread
from escala.model.own_numbers import without_own
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem

FEWEST_CONFIGURATIONS: Final = 3  # from which on leaving one out says something
_NOTHING: Final = 1e-9  # of a logarithm: rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRun:
    """One measured time: seconds of the step, or of some of its terms; `trust` is what it counts at most."""

    name: str
    problem: Problem
    plan: Plan
    seconds: float
    terms: tuple[str, ...] = ()
    trust: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnSample:
    """Own runs, one batch for each configuration, which its repeats share."""

    runs: tuple[OwnRun, ...]
    batches: tuple[I64, ...]
    problems: tuple[Problem, ...]
    log_published: F64
    weights: F64

    @classmethod
    def of(cls, given: Sequence[OwnRun]) -> "OwnSample":
        """The runs without what earlier calibrations did to their problems; a configuration has one vote."""
        runs = tuple(replace(each, problem=without_own(each.problem)) for each in given)
        keys = [_configuration(each) for each in runs]
        alike = list(dict.fromkeys(keys))
        repeats, kinds = Counter(keys), [Regime(regime_of(each)) for each in runs]
        return cls(
            runs=runs,
            batches=tuple(np.flatnonzero([key == each for key in keys]) for each in alike),
            problems=tuple(problem for problem, _, _ in alike),
            log_published=np.log([each.seconds for each in runs]),
            weights=np.array(
                [
                    each.trust * regime_weight(kind) / repeats[key]
                    for each, kind, key in zip(runs, kinds, keys, strict=True)
                ]
            ),
        )

    def __len__(self) -> int:
        """Number of measured times."""
        return len(self.runs)

    def log_seconds(self, batch: int, problem: Problem) -> F64:
        """Logarithm of the predicted seconds of one configuration, if this were its problem."""
        run = self.runs[self.batches[batch][0]]
        return np.log(seconds_of(problem, run.plan, run.terms))


def seconds_of(problem: Problem, plan: Plan, terms: Sequence[str]) -> F64:
    """Predicted seconds of some terms of a plan, or of the whole step. Shape (1,)."""
    time = time_of(problem, Plans.of(plan))
    return sum((getattr(time, name) for name in terms), np.zeros(1)) if terms else time.step_s


def regime_of(run: OwnRun) -> int:
    """The regime of a run's plan."""
    return int(regime(run.problem, Plans.of(run.plan))[0])


def _configuration(run: OwnRun) -> tuple[Problem, Plan, tuple[str, ...]]:
    """What repeats have in common; how long they were meant to go on is not part of it."""
    workload = replace(run.problem.workload, total_tokens=None)
    return replace(run.problem, workload=workload), run.plan, run.terms


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
        for batch, problem in zip(self.sample.batches, self.sample.problems, strict=True):
            run = self.sample.runs[batch[0]]
            if not run.terms:
                stack = (problem.engine.name, problem.accelerator.name, Regime(regime_of(run)).name.lower())
                errors.setdefault(stack, []).append(float(np.abs(self.outside[batch]).mean()))
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
    left = [(own, solved.without(own)) for own in _each_configuration(sample)]
    values = solved.posterior.values
    return OwnFit(
        sample=sample,
        free=tuple(free),
        solved=solved,
        before=before,
        outside=_outside(left) if len(left) >= FEWEST_CONFIGURATIONS else None,
        pulls=np.array([values - others.values for _, others in left]).reshape(len(left), len(free)),
    )


def _each_configuration(sample: OwnSample) -> list[Bool]:
    """The times of each configuration: its step and the terms of it, which are left out together."""
    keys = [_configuration(each)[:2] for each in sample.runs]
    return [np.array([key == each for key in keys]) for each in dict.fromkeys(keys)]


def _outside(left: Sequence[tuple[Bool, LeftOut]]) -> F64:
    """The log error of each time under the values that the other configurations give."""
    found = np.empty(len(left[0][0]))
    for own, others in left:
        found[own] = others.errors[own]
    return found
