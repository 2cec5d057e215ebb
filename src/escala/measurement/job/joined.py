"""The traced profile of a job with what was measured of it without the profiler. Reads and runs nothing."""

from dataclasses import replace

from escala.measurement.job.record import StepRun
from escala.measurement.profile.record import Prediction, Profile, Speed


def joined(given: Profile, run: StepRun, unpredicted: str) -> Profile:
    """The profile of traced steps; rates and the prediction's error are against steps that nothing slowed.

    Parts of the step stay those of the trace; a note says how much longer its steps are.
    """
    step_s, traced_s = run.step_s.median, given.critical.step_s
    slowed = f"the profiler makes a step {traced_s / step_s:.2f} times as long; parts of the step are traced"
    why = f"no prediction: {unpredicted}" if unpredicted else ""
    return replace(
        given,
        speed=None if given.speed is None else _faster(given.speed, traced_s / step_s),
        predicted=None if given.predicted is None else _against(given.predicted, step_s),
        run=run,
        unsaid=(*given.unsaid, *([why] if why else [])),
        notes=(*given.notes, slowed),
    )


def _faster(speed: Speed, ratio: float) -> Speed:
    return replace(
        speed,
        flop_per_s=speed.flop_per_s * ratio,
        hfu=None if speed.hfu is None else speed.hfu * ratio,
        mfu=None if speed.mfu is None else speed.mfu * ratio,
    )


def _against(given: Prediction, step_s: float) -> Prediction:
    return replace(given, error=given.step_s / step_s - 1.0)
