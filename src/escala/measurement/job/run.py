"""A step from request to record: built, warmed up, timed, traced, counted, varied. Prints nothing.

What observes a step slows it, so each observer has steps of its own: the clock, the profiler, the counter of
FLOP, the tracker of memory. Ctrl-C leaves out what has not begun, but never the trace.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from escala.errors import InvalidInput
from escala.measurement.bench.device import Device, device_of
from escala.measurement.bench.host import host_facts
from escala.measurement.bench.ranks import Ranks, joined, left
from escala.measurement.bench.rounds import Progress, reason, stoppable
from escala.measurement.job.batches import samples, tokens
from escala.measurement.job.beside import sampled, usage
from escala.measurement.job.clock import WARMUP_STEPS, Setting, timed
from escala.measurement.job.fault import user_code
from escala.measurement.job.flop import counted_flop
from escala.measurement.job.huggingface import huggingface_job
from escala.measurement.job.job import Job, Runner, Training, Whole, job_of, running
from escala.measurement.job.memory import memory_by_kind, peak_bytes
from escala.measurement.job.record import HeldMemory, StepRun, WhatIf
from escala.measurement.job.request import StepRequest
from escala.measurement.job.spread import spread
from escala.measurement.job.target import imported
from escala.measurement.job.trace import STEPS as TRACED_STEPS
from escala.measurement.job.trace import traced
from escala.measurement.job.whatif import of_all_ranks, what_if
from escala.measurement.sampling.usage import NodeUsage

TURN_STEPS: Final = 3
"""Timed steps of one turn of a practice."""
PATIENCE: Final = timedelta(minutes=30)
"""Of ranks for each other: one may compile, or read its data, while the others wait."""
SINGLE, DATA, OWN = "single device", "data parallel", "own"
WRAPPED: Final = "the model was wrapped in DistributedDataParallel"
TRACED_S: Final = 3.0
"""A step under the profiler takes about so many plain steps: only for the time that is said to be left."""


def run_step(request: StepRequest, progress: Progress) -> StepRun | None:
    """What a step takes here; None in every rank but the first. Traces lie in the folder of the request."""
    try:
        ranks = joined(request.kind, PATIENCE)
    except RuntimeError as error:
        raise InvalidInput(f"the ranks did not meet ({reason(error)}); check the launch") from None
    try:
        with stoppable() as stop:
            device = _device(request, ranks)
            setting = Setting(ranks=ranks, device=device, stop=stop, progress=progress)
            return _measured(request, setting)
    finally:
        left(ranks)


def _device(request: StepRequest, ranks: Ranks) -> Device:
    """The device of this rank; a function keeps the threads that its own launch gives it."""
    threads = torch.get_num_threads()
    found = device_of(request.kind, host_facts(), ranks.local_rank, ranks.local_size)
    if request.keys is not None:
        return found
    torch.set_num_threads(threads)
    return replace(found, threads=threads)


def _measured(request: StepRequest, setting: Setting) -> StepRun | None:
    setting.progress(f"building {request.target}", 0.0)
    job, notes = _job(request, setting)
    if request.practices and isinstance(job, Whole):
        raise InvalidInput(
            f"--what-if changes the model, and {request.target} returned a step alone;"
            " return (model, optimizer, batches, loss)"
        )
    with running(job, request.target) as runner:
        seen = _observed(request, setting, runner)
    tried = _tried(request, setting, job)
    return _record(request, setting, job, seen, tried, notes) if setting.ranks.rank == 0 else None


def _job(request: StepRequest, setting: Setting) -> tuple[Job, tuple[str, ...]]:
    """The job of the request on this rank, and what was done to it."""
    place = setting.device.place
    if request.keys is not None:
        assert request.sizes is not None
        with user_code(request.target):
            return _shared(huggingface_job(request.keys, request.target, request.sizes, place), setting)
    function = imported(request.target)
    with user_code(request.target):
        job = job_of(function(), request.target)
    if isinstance(job, Training) and request.moves:
        job.model.to(place)
    return _shared(job, setting)


def _shared(job: Job, setting: Setting) -> tuple[Job, tuple[str, ...]]:
    """Over several ranks a model that nobody has made parallel becomes data parallel."""
    if setting.ranks.size == 1 or isinstance(job, Whole) or _parallelism(job) != SINGLE:
        return job, ()
    index = [setting.device.index] if job.device.type == "cuda" else None
    return replace(job, model=DistributedDataParallel(job.model, device_ids=index)), (WRAPPED,)


def _parallelism(job: Job) -> str:
    """How the model of a job is spread over ranks, as far as the job shows it."""
    if isinstance(job, Whole) or isinstance(job.model, FullyShardedDataParallel):
        return OWN
    if isinstance(job.model, DistributedDataParallel):
        return DATA
    return OWN if any(isinstance(each, DTensor) for each in job.model.parameters()) else SINGLE


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


def _observed(request: StepRequest, setting: Setting, runner: Runner) -> Seen:
    """Warm-up, then each observer in turn."""
    seen = Seen(times_s=[])
    if runner.feed is not None:
        with user_code(request.target):
            batch = runner.batch()
        seen.samples, seen.tokens = samples(batch), tokens(batch)
        seen.amount, seen.unit = of_all_ranks(setting, batch)
    for number in range(WARMUP_STEPS):
        setting.progress(f"warming up, step {number + 1} of {WARMUP_STEPS}", 0.0)
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


def _tried(request: StepRequest, setting: Setting, job: Job) -> WhatIf | None:
    if not request.practices or isinstance(job, Whole) or setting.is_stopped():
        return None
    return what_if(setting, job, request.practices, request.rounds, TURN_STEPS)


def _record(
    request: StepRequest, setting: Setting, job: Job, seen: Seen, tried: WhatIf | None, notes: tuple[str, ...]
) -> StepRun:
    step_s = spread(seen.times_s)
    training = job if isinstance(job, Training) else None
    return StepRun(
        target=request.target,
        device=str(setting.device.place if training is None else training.device),
        ranks=setting.ranks.size,
        threads=setting.device.threads,
        parallelism=_parallelism(job),
        model=None if training is None else type(_inner(training.model)).__name__,
        parameters=None if training is None else sum(each.numel() for each in training.model.parameters()),
        optimizer=None if training is None else type(training.optimizer).__name__,
        samples=seen.samples,
        tokens=seen.tokens,
        precision=None if request.sizes is None else request.sizes.precision,
        step_s=step_s,
        unit=seen.unit,
        rate_per_s=None if seen.amount is None else seen.amount / step_s.median,
        flop=seen.flop,
        peak_bytes=seen.peak_bytes,
        memory=seen.memory,
        usage=seen.usage,
        what_if=tried,
        notes=(*notes, *seen.gaps),
        is_interrupted=setting.stop.is_asked,
    )


def _inner(model: Any) -> Any:
    """The model under what distributes or compiles it."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    return getattr(inner, "_orig_mod", inner)
