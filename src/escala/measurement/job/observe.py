"""The plain step under each observer in turn: the clock, the profiler, the counter, the tracker. Tells none.

What observes a step slows it, so each observer has steps of its own. Ctrl-C leaves out what has not begun,
but never the trace.
"""

from dataclasses import dataclass
from math import nan
from typing import Final

from escala.measurement.job.batches import samples, tokens
from escala.measurement.job.beside import sampled, usage
from escala.measurement.job.clock import WARMUP_STEPS, Setting, timed
from escala.measurement.job.fault import user_code
from escala.measurement.job.flop import counted_flop
from escala.measurement.job.job import Runner, Training
from escala.measurement.job.memory import memory_by_kind, peak_bytes
from escala.measurement.job.record import HeldMemory
from escala.measurement.job.request import StepRequest
from escala.measurement.job.trace import STEPS as TRACED_STEPS
from escala.measurement.job.trace import traced
from escala.measurement.job.whatif import of_all_ranks
from escala.measurement.sampling.usage import NodeUsage

TRACED_S: Final = 3.0
"""A step under an observer takes about so many plain steps: only for the time that is said to be left."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the observers of the plain step have seen so far."""

    times_s: list[float]
    samples: int | None = None
    tokens: int | None = None
    amount: float | None = None
    unit: str = "samples"
    flop: float | None = None
    memory: HeldMemory | None = None
    peak_bytes: float | None = None
    usage: tuple[NodeUsage, ...] = ()
    gaps: tuple[str, ...] = ()


def observed(request: StepRequest, setting: Setting, runner: Runner) -> Seen:
    """Warm-up, then each observer in turn."""
    seen = Seen(times_s=[])
    if runner.feed is not None:
        with user_code(request.target):
            batch = runner.batch()
        seen.samples, seen.tokens = samples(batch), tokens(batch)
        seen.amount, seen.unit = of_all_ranks(setting, batch)
    for number in range(WARMUP_STEPS):
        setting.progress(f"warming up, step {number + 1} of {WARMUP_STEPS}", nan)
        step_s = timed(runner, 1, setting.device.wait)
    _timed(request, setting, runner, step_s, seen)
    setting.progress("tracing", TRACED_STEPS * TRACED_S * step_s)
    traced(setting, runner, request.folder)
    if not setting.is_stopped():
        _counted(setting, runner, step_s, seen)
    return seen


def _timed(request: StepRequest, setting: Setting, runner: Runner, step_s: float, seen: Seen) -> None:
    mine: list[float] = []
    with sampled() as beside:
        for number in range(request.steps):
            if mine and setting.is_stopped():
                break
            left_s = (request.steps - number + TRACED_STEPS * TRACED_S) * step_s
            setting.progress(f"timing step {number + 1} of {request.steps}", left_s)
            mine.append(timed(runner, 1, setting.device.wait))
    seen.times_s = setting.slowest(mine)
    seen.usage, seen.gaps = usage(beside, setting.ranks, request.folder), beside.gaps


def _counted(setting: Setting, runner: Runner, step_s: float, seen: Seen) -> None:
    setting.progress("counting FLOP and memory", 3 * TRACED_S * step_s)
    flop = [each for each in setting.ranks.gather(counted_flop(runner)) if each is not None]
    seen.flop = sum(flop) or None
    place = runner.job.device if isinstance(runner.job, Training) else setting.device.place
    seen.peak_bytes = setting.ranks.most(peak_bytes(runner, place))
    held = setting.ranks.gather(memory_by_kind(runner))
    seen.memory = max((each for each in held if each is not None), key=_peak, default=None)


def _peak(held: HeldMemory) -> float:
    return held.peak_bytes
