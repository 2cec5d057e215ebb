"""The traced profile of a job with what was measured of it without the profiler. Reads and runs nothing."""

from dataclasses import replace
from typing import Final

from escala.measurement.job.record import StepRun
from escala.measurement.profile.record import Prediction, Profile, Speed
from escala.units import show_seconds

MOST_SLOWED: Final = 2.0
DISTURBED: Final = ", which other programs or the profiler distorted: run it again on a quiet machine"


def joined(given: Profile, run: StepRun, unpredicted: str) -> Profile:
    """The profile of traced steps; rates and the prediction's error are against steps that nothing slowed.

    FLOP are those that torch counted, where it counted any. Parts of the step stay those of the trace; a note
    has the seconds of both.
    """
    step_s, traced_s = run.step_s.median, given.critical.step_s
    both = f"a step took {show_seconds(step_s)}, and {show_seconds(traced_s)} under the profiler"
    doubt = DISTURBED if traced_s > MOST_SLOWED * step_s else ""
    return replace(
        given,
        speed=None if given.speed is None else _unslowed(given.speed, traced_s, run),
        predicted=None if given.predicted is None else _against(given.predicted, step_s),
        run=run,
        unsaid=(*given.unsaid, *([f"prediction: {unpredicted}"] if unpredicted else [])),
        notes=(*given.notes, f"{both}; its parts are those of the trace{doubt}"),
    )


def _unslowed(speed: Speed, traced_s: float, run: StepRun) -> Speed:
    """FLOP of a rank / seconds without the profiler, and the shares of the peak that follow from it."""
    step_s = run.step_s.median
    flop_per_s = speed.flop_per_s * traced_s / step_s if run.flop is None else run.flop / run.ranks / step_s
    ratio = flop_per_s / speed.flop_per_s
    return replace(
        speed,
        flop_per_s=flop_per_s,
        hfu=None if speed.hfu is None else speed.hfu * ratio,
        mfu=None if speed.mfu is None else speed.mfu * traced_s / step_s,
    )


def _against(given: Prediction, step_s: float) -> Prediction:
    return replace(given, error=given.step_s / step_s - 1.0)
