"""What predictions are worth: errors of time and memory, verdicts, sweeps. Statistics only, no predicting.

Low-trust rows are scored apart from all others. Shares and errors are parts of one: 0.05 is 5 %.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from escala.calibration.reading import Reading
from escala.calibration.samples import Errors, Group, Sample, errors_of, groups_of
from escala.calibration.scoring import Prediction
from escala.calibration.sweeps import SweepScores, by_group, summary, sweep_scores
from escala.model.interval import WORDS
from escala.model.memory import Verdict

Named = Callable[[Reading], str]
DIMENSIONS: Final[Mapping[str, Named]] = {
    "source": lambda reading: reading.row.source,
    "group": lambda reading: reading.group,
    "accelerator": lambda reading: reading.problem.accelerator.name,
    "framework": lambda reading: reading.problem.engine.name,
    "arch": lambda reading: reading.arch,
    "regime": lambda reading: WORDS[reading.regime],
    "year": lambda reading: str(reading.row.year or "not printed"),
}
OVERALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """How often rows are called each verdict."""

    rows: int
    fits: int
    risky: int
    does_not_fit: int
    does_not_fit_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Everything that is said of predictions; None or empty where no row has the quantity.

    `ran_out` counts verdicts of runs that ended out of memory, `ran` those of runs that did not and whose
    source prints what decides (recompute, offload); `ran_unprinted` those of all others that ran.
    """

    time: Errors | None
    time_by: dict[str, tuple[Group, ...]]
    memory: Errors | None
    memory_by_source: tuple[Group, ...]
    memory_by_counter: tuple[Group, ...]
    ran_out: Verdicts
    ran: Verdicts
    ran_unprinted: Verdicts
    sweeps: SweepScores | None
    sweeps_by_group: tuple[SweepScores, ...]
    low_trust_time: Errors | None
    low_trust_time_by_source: tuple[Group, ...]
    low_trust_memory: Errors | None

    @property
    def all_ran(self) -> Verdicts:
        """Verdicts of every run that ran, whatever its source prints."""
        return together(self.ran, self.ran_unprinted)


def score(predictions: Sequence[Prediction]) -> Scores:
    """All statistics of predictions, in any order."""
    trusted = [each for each in predictions if each.reading.is_trusted]
    other = [each for each in predictions if not each.reading.is_trusted]
    time, low = _sampled(trusted, time_sample), _sampled(other, time_sample)
    memory = _sampled(trusted, memory_sample)
    ran = [each for each in trusted if not each.reading.ran_out]
    sweeps = sweep_scores(trusted)
    return Scores(
        time=_errors(time),
        time_by={name: _groups(time, named) for name, named in DIMENSIONS.items()},
        memory=_errors(memory),
        memory_by_source=_groups(memory, DIMENSIONS["source"]),
        memory_by_counter=_groups(memory, lambda reading: str(reading.counter)),
        ran_out=verdicts_of(each for each in trusted if each.reading.ran_out),
        ran=verdicts_of(each for each in ran if each.reading.tests_verdict),
        ran_unprinted=verdicts_of(each for each in ran if not each.reading.tests_verdict),
        sweeps=summary(OVERALL, sweeps),
        sweeps_by_group=by_group(sweeps),
        low_trust_time=_errors(low),
        low_trust_time_by_source=_groups(low, DIMENSIONS["source"]),
        low_trust_memory=_errors(_sampled(other, memory_sample)),
    )


Sampled = Sequence[tuple[Reading, Sample]]


def _sampled(predictions: Iterable[Prediction], sampled: Callable[[Prediction], Sample | None]) -> Sampled:
    pairs = ((each.reading, sampled(each)) for each in predictions)
    return [(reading, sample) for reading, sample in pairs if sample]


def _errors(sampled: Sampled) -> Errors | None:
    return errors_of([sample for _, sample in sampled])


def _groups(sampled: Sampled, named: Named) -> tuple[Group, ...]:
    return groups_of((named(reading), sample) for reading, sample in sampled)


def time_sample(given: Prediction) -> Sample | None:
    """Published and predicted seconds of a step; None where no time is printed."""
    reading = given.reading
    if reading.step_s is None:
        return None
    return Sample(
        id=reading.row.id,
        configuration=reading.configuration,
        published=reading.step_s,
        predicted=given.step_s,
        low=given.step_s / given.step_ratio,
        high=given.step_s * given.step_ratio,
    )


def memory_sample(given: Prediction) -> Sample | None:
    """Published and predicted bytes in the counter of the source; None where no memory is printed."""
    reading, known = given.reading, given.reading.problem.assumptions
    if reading.memory_bytes is None:
        return None
    return Sample(
        id=reading.row.id,
        configuration=reading.configuration,
        published=reading.memory_bytes,
        predicted=given.memory_bytes,
        low=given.memory_bytes * known.memory_interval_low,
        high=given.memory_bytes * known.memory_interval_high,
    )


def verdicts_of(predictions: Iterable[Prediction]) -> Verdicts:
    """Verdicts counted, and the share that is called "does not fit"."""
    called = [each.verdict for each in predictions]
    count = {verdict: called.count(verdict) for verdict in Verdict}
    return Verdicts(
        rows=len(called),
        fits=count[Verdict.FITS],
        risky=count[Verdict.RISKY],
        does_not_fit=count[Verdict.DOES_NOT_FIT],
        does_not_fit_share=count[Verdict.DOES_NOT_FIT] / len(called) if called else None,
    )


def together(one: Verdicts, other: Verdicts) -> Verdicts:
    """The verdicts of two sets of rows as one set."""
    rows, impossible = one.rows + other.rows, one.does_not_fit + other.does_not_fit
    return Verdicts(
        rows=rows,
        fits=one.fits + other.fits,
        risky=one.risky + other.risky,
        does_not_fit=impossible,
        does_not_fit_share=impossible / rows if rows else None,
    )


def worst_of(predictions: Iterable[Prediction], count: int) -> tuple[Prediction, ...]:
    """The trusted rows with the largest error of time of either sign, the worst first."""
    trusted = [each for each in predictions if each.reading.is_trusted and each.reading.step_s]
    return tuple(sorted(trusted, key=_badness)[:count])


def _badness(given: Prediction) -> tuple[float, str]:
    sample = time_sample(given)
    assert sample is not None
    return -abs(sample.error), sample.id
