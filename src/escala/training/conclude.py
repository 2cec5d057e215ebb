"""A finished run as a record, beside its prediction. Reads the traces of the run; trains nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from escala import __version__
from escala.errors import EscalaError
from escala.measurement.cause import Cause, cause_of
from escala.measurement.profile.analyse import Planned, profile
from escala.measurement.profile.read import read_traces
from escala.measurement.profile.record import Prediction, Profile
from escala.measurement.runrecord import RUN_SCHEMA, Figure, LogFile, Peak, RunRecord, StepTimes
from escala.measurement.sampling.others import OtherWork
from escala.measurement.verify import Verified, verify
from escala.model.columns import F64
from escala.planning.simplicity import describe as title_of
from escala.training.job import Job
from escala.training.noise import LEAST_STEPS
from escala.training.sinks import LINES
from escala.training.steprecord import StepRecord

TRAIN_SCHEMA: Final = "escala/train@1"
WARMUP: Final = 3
"""Steps of a session that are not timed: memory is claimed, connections are made."""
LOGGED: Final = "logged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a run came to. Schema escala/train@1; `unsaid` says what could not be compared, and why.

    Losses are means in nats per target. `held_out_loss` is that of the last evaluation.
    `noise_batch` is the batch, in samples, beyond which more data parallelism buys little, if it was watched,
    and `noise_low` to `noise_high` its 80 % interval; without an upper end where that is not known.
    `other_work` is what else ran on the first node while steps were made, None where psutil is missing.
    """

    schema: str
    escala: str
    folder: str
    network: str
    plan_title: str
    steps: int
    samples: int
    is_interrupted: bool
    first_loss: float | None
    last_loss: float | None
    held_out_loss: float | None
    noise_batch: float | None
    noise_low: float | None = None
    noise_high: float | None = None
    run: RunRecord | None
    verified: Verified | None
    profile: Profile | None
    cause: Cause | None
    other_work: OtherWork | None = None
    checkpoint: str | None
    notes: tuple[str, ...]
    unsaid: tuple[str, ...]


def run_record(job: Job, records: Sequence[StepRecord], peak_bytes: float | None) -> RunRecord | None:
    """The steps of one session as a RunRecord: without warm-up and observed steps; None if none is left.

    With local steps a sample is the mean of a whole round of them, of which the last one agrees.
    """
    plain = [each for each in records[WARMUP:] if not each.is_observed]
    seconds = _seconds(plain, job.plan.local_steps)
    if not len(seconds):
        return None
    low, median, high = (float(each) for each in np.percentile(seconds, (25, 50, 75)))
    work, samples_per_s = job.problem.workload, job.global_batch / median
    is_image = work.network.is_image
    tokens = Figure(value=samples_per_s * job.tokens_per_sample, samples=len(plain), origin="derived")
    device = next((each.peak_bytes for each in reversed(plain) if each.peak_bytes is not None), peak_bytes)
    return RunRecord(
        schema=RUN_SCHEMA,
        escala=__version__,
        sources=(LogFile(path=str(job.folder / LINES), tool="escala", numbers=len(records), left_out={}),),
        began=None,
        ended=None,
        last_step=records[-1].step,
        step=StepTimes(
            how=LOGGED,
            median_s=median,
            low_quartile_s=low,
            high_quartile_s=high,
            samples=len(seconds),
            warmup_samples=min(WARMUP, len(records)),
        ),
        ranks=(),
        tokens_per_s=None if is_image else tokens,
        tokens_per_s_per_device=None,
        samples_per_s=Figure(value=samples_per_s, samples=len(plain), origin="derived"),
        samples_per_s_per_device=None,
        flop_per_s_per_device=None,
        mfu=_mfu(plain),
        memory=() if device is None else (Peak(counter="allocated", peak_bytes=device, lane=""),),
        power=None,
        metered=(),
        devices=job.problem.cluster.devices,
        global_batch=job.global_batch,
        sequence_tokens=None if is_image else work.sequence_tokens,
        unsaid=(),
        notes=(),
    )


def _seconds(plain: Sequence[StepRecord], local_steps: int) -> F64:
    """Seconds of each step, or the mean of each round of local steps that is there as a whole."""
    rounds: dict[int, list[float]] = {}
    for each in plain:
        rounds.setdefault((each.step - 1) // local_steps, []).append(each.step_s)
    return np.array([np.mean(each) for each in rounds.values() if len(each) == local_steps])


def _mfu(plain: Sequence[StepRecord]) -> Figure | None:
    found = [each.mfu for each in plain if each.mfu is not None]
    return Figure(value=float(np.median(found)), samples=len(found), origin="derived") if found else None


def concluded(
    job: Job,
    records: Sequence[StepRecord],
    *,
    peak_bytes: float | None,
    traces: Path | None,
    is_interrupted: bool,
    checkpoint: Path | None,
    notes: tuple[str, ...],
    other_work: OtherWork | None = None,
) -> Trained:
    """The document of a run: what it recorded, predicted beside measured, the likely cause of the gap."""
    unsaid: list[str] = []
    run = run_record(job, records, peak_bytes)
    if run is None:
        unsaid.append("predicted against measured: too few steps")
    if records and records[-1].noise_batch is None and records[-1].noise_steps:
        unsaid.append(_unheard(records[-1].noise_steps))
    seen = _profile(job, traces, unsaid)
    told = None if seen is None or seen.predicted is None else seen.predicted
    losses = [each.held_out_loss for each in records if each.held_out_loss is not None]
    return Trained(
        schema=TRAIN_SCHEMA,
        escala=__version__,
        folder=str(job.folder),
        network=job.problem.workload.network.name,
        plan_title=title_of(job.plan),
        steps=records[-1].step if records else 0,
        samples=records[-1].samples if records else 0,
        is_interrupted=is_interrupted,
        first_loss=records[0].loss if records else None,
        last_loss=records[-1].loss if records else None,
        held_out_loss=losses[-1] if losses else None,
        noise_batch=records[-1].noise_batch if records else None,
        noise_low=records[-1].noise_low if records else None,
        noise_high=records[-1].noise_high if records else None,
        run=run,
        verified=None if run is None else _verified(job, run, unsaid),
        profile=seen,
        cause=None if told is None or seen is None else _cause(told, seen, other_work),
        other_work=other_work,
        checkpoint=None if checkpoint is None else str(checkpoint),
        notes=notes,
        unsaid=tuple(unsaid),
    )


def _cause(told: Prediction, seen: Profile, others: OtherWork | None) -> Cause | None:
    return cause_of(told, seen.critical.step_s, data_s=seen.critical.phases.data_s, others=others)


def _unheard(steps: int) -> str:
    """Why a watched noise is not told."""
    if steps < LEAST_STEPS:
        return (
            f"the noise of the gradients: {steps} steps are too few for a number; give {LEAST_STEPS} or more"
        )
    return f"the noise of the gradients: it drowned their signal over {steps:,} steps; give more"


def _verified(job: Job, run: RunRecord, unsaid: list[str]) -> Verified | None:
    """A run that no formula describes is told without a prediction."""
    try:
        return verify(run, job.problem, job.plan)
    except EscalaError as error:
        unsaid.append(f"predicted against measured: {error}")
        return None


def _profile(job: Job, traces: Path | None, unsaid: list[str]) -> Profile | None:
    if traces is None:
        unsaid.append("the step term by term: too few steps were run to observe some")
        return None
    try:
        return profile(read_traces([str(traces)]), None, Planned(problem=job.problem, plan=job.plan))
    except EscalaError as error:
        unsaid.append(f"the step term by term: {error}")
        return None
