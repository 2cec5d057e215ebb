"""`calibrate`: what recorded runs make of the numbers that their plans were predicted with.

Turns records and profiles into measured times, and the fit into a document and a calibration. Fits nothing
itself, reads no file.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from escala import __version__
from escala.calibration.own import FEWEST_CONFIGURATIONS, OwnFit, OwnRun, calibrate, regime_of
from escala.calibration.own_list import LIMIT
from escala.catalog.fitted import fitted
from escala.measurement.calibration_record import (
    CALIBRATE_SCHEMA,
    Calibrated,
    MeanErrors,
    MemoryCheck,
    NumberFit,
    RunFit,
    WidthFit,
)
from escala.measurement.paired import Paired
from escala.measurement.profile.record import Profile
from escala.measurement.runrecord import RunRecord
from escala.measurement.timed import WHOLE_RUN_TRUST, timed
from escala.measurement.verify import MEAN, verify
from escala.model.columns import F64
from escala.model.interval import WORDS, Regime, combined_ratio, published_ratios
from escala.model.own import OwnRuns
from escala.planning.simplicity import describe as title_of

INFORMED: Final = 0.1  # the share from which on runs decide something of a number, as on the accuracy page
ODD: Final = 2.5  # times the 80 % interval: 3.2 standard deviations of a normal error
_PULLS: Final = 2


def calibrated(
    pairs: Sequence[Paired], date: str, digest: str, progress: Callable[[str, float], None]
) -> Calibrated:
    """Everything that the runs say: numbers, errors before, after and left out, what is doubtful."""
    memory = tuple(check for each in pairs for check in _checked(each))
    found = calibrate([time for each in pairs for time in timed(each)], progress)
    runs, numbers = tuple(_runs(found)), tuple(_numbers(found))
    return Calibrated(
        schema=CALIBRATE_SCHEMA,
        escala=__version__,
        configurations=len(found.sample.configurations),
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


def _checked(given: Paired) -> Iterator[MemoryCheck]:
    """Recorded peaks beside their predictions; a run of another question than the plan's is refused."""
    if isinstance(given.run, RunRecord):
        for row in verify(given.run, given.problem, given.plan).compared:
            if row.quantity.startswith("memory"):
                yield MemoryCheck(name=given.name, compared=row)


def _runs(found: OwnFit) -> Iterator[RunFit]:
    after, outside = found.solved.errors, found.outside
    for i, run in enumerate(found.sample.runs):
        worst = float(after[i] if outside is None else outside[i])
        yield RunFit(
            name=run.name,
            part=run.part,
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
            is_odd=run.is_step and abs(worst) > ODD * math.log(_published_ratio(run)),
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
    return tuple(found.sample.runs[found.sample.configurations[k][0]].name for k in order[:_PULLS])


def _errors(found: OwnFit) -> MeanErrors:
    def mean(errors: F64) -> float:
        sizes = np.abs(np.expm1(errors))
        return float(np.mean([sizes[batch].mean() for batch in found.sample.steps]))

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
        ran = len(found.sample.configurations)
        yield (
            f"{ran} configuration{'s' * (ran != 1)}: with fewer than {FEWEST_CONFIGURATIONS} none can be left"
            " out, so errors are those in the fit, and intervals stay those of published runs"
        )
    if has_memory:
        yield "memory is only checked: the published fit has no free number of memory"
    records = {each.name: each.run for each in pairs if isinstance(each.run, RunRecord)}
    whole = [name for name, run in records.items() if run.step is not None and run.step.how == MEAN]
    if whole:
        yield f"{', '.join(whole)}: mean of a whole run with its warm-up, counts × {WHOLE_RUN_TRUST:g}"
    profiles = [each.name for each in pairs if isinstance(each.run, Profile)]
    if profiles:
        yield (
            f"{', '.join(profiles)}: a profiled step without data and idle time, which no plan has; each part"
            " counts as its share, and recording may have slowed it"
        )
    unsaid = [name for name, run in records.items() if run.devices is None]
    if unsaid:
        yield f"{', '.join(unsaid)}: the logs do not say how many devices; that the plan is theirs is trusted"


def _calibration(found: OwnFit, date: str, digest: str) -> OwnRuns:
    runs = [run for run in found.sample.runs if run.is_step]
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
