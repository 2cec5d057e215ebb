"""`calibrate`: what recorded runs make of the numbers that their plans were predicted with.

Turns records and profiles into measured times, and the fit into a document and a calibration. Fits nothing
itself, reads no file.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala import __version__
from escala.calibration.own import FEWEST_CONFIGURATIONS, OwnFit, OwnRun, calibrate, regime_of
from escala.calibration.own_list import LIMIT
from escala.catalog.fitted import fitted
from escala.errors import InvalidInput
from escala.measurement.paired import Paired
from escala.measurement.verify import MEAN, Compared, verify
from escala.model.columns import F64
from escala.model.interval import WORDS, Regime, combined_ratio, published_ratios
from escala.model.own import OwnRuns
from escala.planning.simplicity import describe as title_of

CALIBRATE_SCHEMA: Final = "escala/calibrate@1"
INFORMED: Final = 0.1  # the share from which on runs decide something of a number, as on the accuracy page
ODD: Final = 2.5  # times the 80 % interval: 3.2 standard deviations of a normal error
WHOLE_RUN_TRUST: Final = 0.6  # of a step that is the mean of a run with its warm-up, as of a row with a gap
_PULLS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFit:
    """One run: measured seconds of a step, predicted before and after, and by the other runs' numbers alone.

    Errors are predicted / measured - 1. `left_out_s` is None where fewer than three configurations ran;
    `weight` is what the run counts; `is_odd` says that it fits badly.
    """

    name: str
    plan_title: str
    network: str
    engine: str
    accelerator: str
    devices: int
    measured_s: float
    weight: float
    before_s: float
    after_s: float
    left_out_s: float | None
    error_before: float
    error_after: float
    error_left_out: float | None
    is_odd: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFit:
    """One number: its value before and after, and who moved it.

    `moved` is the logarithm of the factor in prior standard deviations, `prior_sd` and `sd` are of that
    logarithm, `share` is what the runs decide. `pulled` names the configurations that moved it most,
    `informed_by` the run that would say more, `is_stopped` that it stands at the end of its range.
    """

    of: str
    name: str
    field: str
    accelerator: str
    before: float
    after: float
    factor: float
    prior_sd: float
    sd: float
    moved: float
    share: float
    pulled: tuple[str, ...]
    is_stopped: bool
    informed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthFit:
    """The factor of the 80 % interval of one stack and regime: from published runs, and with own ones."""

    engine: str
    accelerator: str
    regime: str
    configurations: int
    error: float
    published_ratio: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCheck:
    """A recorded peak beside its prediction, which no run moves."""

    name: str
    compared: Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanErrors:
    """Mean size of the errors of the runs, one vote for each configuration."""

    before: float
    after: float
    left_out: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The document of `escala calibrate --json`; `calibration` is what `-o` writes."""

    schema: str
    escala: str
    configurations: int
    effective_numbers: float
    errors: MeanErrors
    runs: tuple[RunFit, ...]
    numbers: tuple[NumberFit, ...]
    widths: tuple[WidthFit, ...]
    memory: tuple[MemoryCheck, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    calibration: OwnRuns


def calibrated(
    pairs: Sequence[Paired], date: str, digest: str, progress: Callable[[str, float], None]
) -> Calibrated:
    """Everything that the runs say: numbers, errors before, after and left out, what is doubtful."""
    verified = [verify(each.run, each.problem, each.plan) for each in pairs]
    found = calibrate([_timed(each) for each in pairs], progress)
    runs, numbers = tuple(_runs(found)), tuple(_numbers(found))
    memory = tuple(
        MemoryCheck(name=pair.name, compared=row)
        for pair, each in zip(pairs, verified, strict=True)
        for row in each.compared
        if row.quantity.startswith("memory")
    )
    return Calibrated(
        schema=CALIBRATE_SCHEMA,
        escala=__version__,
        configurations=len(found.sample.batches),
        effective_numbers=float(np.clip(found.solved.posterior.share, 0.0, 1.0).sum()),
        errors=_errors(found),
        runs=runs,
        numbers=numbers,
        widths=_widths(found),
        memory=memory,
        warnings=tuple(_warnings(runs, numbers)),
        notes=tuple(_notes(found, pairs, has_memory=bool(memory))),
        calibration=_calibration(found, date, digest),
    )


def _timed(given: Paired) -> OwnRun:
    step = given.run.step
    if step is None:
        raise InvalidInput(
            f"{given.name} has no step time, so nothing can be fitted to it; leave it out,"
            " or record logs that say one"
        )
    return OwnRun(
        name=given.name,
        problem=given.problem,
        plan=given.plan,
        seconds=step.median_s,
        trust=WHOLE_RUN_TRUST if step.how == MEAN else 1.0,
    )


def _runs(found: OwnFit) -> Iterator[RunFit]:
    after, outside = found.solved.errors, found.outside
    for i, run in enumerate(found.sample.runs):
        worst = float(after[i] if outside is None else outside[i])
        yield RunFit(
            name=run.name,
            plan_title=title_of(run.plan),
            network=run.problem.workload.network.name,
            engine=run.problem.engine.name,
            accelerator=run.problem.accelerator.name,
            devices=run.problem.cluster.devices,
            measured_s=run.seconds,
            weight=float(found.sample.weights[i]),
            before_s=run.seconds * math.exp(found.before[i]),
            after_s=run.seconds * math.exp(after[i]),
            left_out_s=None if outside is None else run.seconds * math.exp(outside[i]),
            error_before=math.expm1(found.before[i]),
            error_after=math.expm1(after[i]),
            error_left_out=None if outside is None else math.expm1(outside[i]),
            is_odd=abs(worst) > ODD * math.log(_published_ratio(run)),
        )


def _published_ratio(run: OwnRun) -> float:
    return float(published_ratios(run.problem)[regime_of(run)])


def _numbers(found: OwnFit) -> Iterator[NumberFit]:
    posterior = found.solved.posterior
    for j, each in enumerate(found.free):
        value = float(posterior.values[j])
        yield NumberFit(
            of=each.number.of,
            name=each.number.name,
            field=each.number.field,
            accelerator=each.number.accelerator,
            before=each.before,
            after=each.before * math.exp(value),
            factor=math.exp(value),
            prior_sd=each.sd,
            sd=float(posterior.sd[j]),
            moved=value / each.sd,
            share=float(np.clip(posterior.share[j], 0.0, 1.0)),
            pulled=_pulled(found, j),
            is_stopped=bool(found.solved.is_stopped[j]),
            informed_by=each.informed_by,
        )


def _pulled(found: OwnFit, number: int) -> tuple[str, ...]:
    """The configurations without which the number would have moved least, the strongest first."""
    pulls = np.abs(found.pulls[:, number])
    order = [int(k) for k in np.argsort(-pulls, kind="stable") if pulls[k] > INFORMED * pulls.max()]
    return tuple(found.sample.runs[found.sample.batches[k][0]].name for k in order[:_PULLS])


def _errors(found: OwnFit) -> MeanErrors:
    def mean(errors: F64) -> float:
        sizes = np.abs(np.expm1(errors))
        return float(np.mean([sizes[batch].mean() for batch in found.sample.batches]))

    return MeanErrors(
        before=mean(found.before),
        after=mean(found.solved.errors),
        left_out=None if found.outside is None else mean(found.outside),
    )


def _widths(found: OwnFit) -> tuple[WidthFit, ...]:
    stacks = {
        (run.problem.engine.name, run.problem.accelerator.name): published_ratios(run.problem)
        for run in found.sample.runs
    }
    rows = []
    for each in found.spreads:
        kind = Regime[each.regime.upper()]
        published = float(stacks[each.engine, each.accelerator][kind])
        rows.append(
            WidthFit(
                engine=each.engine,
                accelerator=each.accelerator,
                regime=WORDS[kind],
                configurations=each.configurations,
                error=each.error,
                published_ratio=published,
                ratio=combined_ratio(published, each.configurations, each.error),
            )
        )
    return tuple(rows)


def _warnings(runs: Sequence[RunFit], numbers: Sequence[NumberFit]) -> Iterator[str]:
    for run in runs:
        if run.is_odd:
            yield (
                f"{run.name} fits badly: perhaps another plan or machine than the file says, or a run that"
                " something slowed; look at it, or leave it out"
            )
    for each in numbers:
        if each.is_stopped:
            yield (
                f"{each.field} of {each.name} stops at × {each.factor:.3g}, the end of its range"
                f" ({LIMIT:g} prior standard deviations, a share of at most 1): the cause is likely elsewhere"
            )


def _notes(found: OwnFit, pairs: Sequence[Paired], *, has_memory: bool) -> Iterator[str]:
    if found.outside is None:
        ran = len(found.sample.batches)
        yield (
            f"{ran} configuration{'s' * (ran != 1)}: with fewer than {FEWEST_CONFIGURATIONS} none can be left"
            " out, so errors are those in the fit, and intervals stay those of published runs"
        )
    if has_memory:
        yield "memory is only checked: the published fit has no free number of memory"
    whole = [each.name for each in pairs if each.run.step is not None and each.run.step.how == MEAN]
    if whole:
        yield f"{', '.join(whole)}: mean of a whole run with its warm-up, counts × {WHOLE_RUN_TRUST:g}"
    unsaid = [each.name for each in pairs if each.run.devices is None]
    if unsaid:
        yield f"{', '.join(unsaid)}: the logs do not say how many devices; that the plan is theirs is trusted"


def _calibration(found: OwnFit, date: str, digest: str) -> OwnRuns:
    runs = found.sample.runs
    machines = [
        f"{run.problem.cluster.devices} × {run.problem.accelerator.name}, {run.problem.engine.name}"
        for run in runs
    ]
    return OwnRuns(
        escala=__version__,
        fit=fitted().digest,
        date=date,
        digest=digest,
        runs=tuple(run.name for run in runs),
        machines=tuple(dict.fromkeys(machines)),
        factor=found.factors,
        spread=found.spreads,
    )
