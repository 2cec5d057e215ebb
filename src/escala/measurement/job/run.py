"""A step from request to record: built, made data parallel, observed, varied. Prints nothing."""

import os
from dataclasses import replace
from datetime import timedelta
from math import nan
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
from escala.measurement.job.clock import Setting
from escala.measurement.job.fault import user_code
from escala.measurement.job.huggingface import huggingface_job
from escala.measurement.job.job import Job, Training, Whole, job_of, running
from escala.measurement.job.observe import Seen, observed
from escala.measurement.job.practices import recomputes
from escala.measurement.job.record import DATA, OWN, SINGLE, StepRun, WhatIf
from escala.measurement.job.request import QUIET_PROFILER, StepRequest
from escala.measurement.job.spread import spread
from escala.measurement.job.target import imported
from escala.measurement.job.whatif import what_if

TURN_STEPS: Final = 3
"""Timed steps of one turn of a practice."""
PATIENCE: Final = timedelta(minutes=30)
"""Of ranks for each other: one may compile, or read its data, while the others wait."""
WRAPPED: Final = "the model was wrapped in DistributedDataParallel"


def run_step(request: StepRequest, progress: Progress) -> StepRun | None:
    """What a step takes here; None in every rank but the first. Traces lie in the folder of the request."""
    if request.kind == "cpu":
        os.environ.setdefault(*QUIET_PROFILER)
    try:
        ranks = joined(request.kind, PATIENCE, levels=())
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
    setting.progress(f"building {request.target}", nan)
    job, notes = _job(request, setting)
    if request.practices and isinstance(job, Whole):
        raise InvalidInput(
            f"--what-if changes the model, and {request.target} returned a step alone;"
            " return (model, optimizer, batches, loss)"
        )
    with running(job, request.target) as runner:
        seen = observed(request, setting, runner)
    tried = _tried(request, setting, job)
    found = _record(request, setting, job, seen)
    return replace(found, what_if=tried, notes=(*notes, *found.notes)) if setting.ranks.rank == 0 else None


def _job(request: StepRequest, setting: Setting) -> tuple[Job, tuple[str, ...]]:
    """The job of the request on this rank, and what was done to it."""
    place = setting.device.place
    if request.keys is not None:
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
    if setting.ranks.size == 1 or isinstance(job, Whole) or _parallelism(job, setting.ranks.size) != SINGLE:
        return job, ()
    index = [setting.device.index] if job.device.type == "cuda" else None
    return replace(job, model=DistributedDataParallel(job.model, device_ids=index)), (WRAPPED,)


def _parallelism(job: Job, ranks: int) -> str:
    """How the model of a job is spread over ranks, as far as the job shows it."""
    if isinstance(job, Whole):
        return SINGLE if ranks == 1 else OWN
    if isinstance(job.model, FullyShardedDataParallel):
        return OWN
    if isinstance(job.model, DistributedDataParallel):
        return DATA
    return OWN if any(isinstance(each, DTensor) for each in job.model.parameters()) else SINGLE


def _tried(request: StepRequest, setting: Setting, job: Job) -> WhatIf | None:
    if not request.practices or isinstance(job, Whole) or setting.is_stopped():
        return None
    return what_if(setting, job, request.practices, request.rounds, TURN_STEPS)


def _record(request: StepRequest, setting: Setting, job: Job, seen: Seen) -> StepRun:
    """What was seen of the plain step."""
    step_s = spread(seen.times_s)
    training = job if isinstance(job, Training) else None
    return StepRun(
        target=request.target,
        device=str(setting.device.place if training is None else training.device),
        ranks=setting.ranks.size,
        threads=setting.device.threads,
        parallelism=_parallelism(job, setting.ranks.size),
        model=None if training is None else type(_inner(training.model)).__name__,
        parameters=None if training is None else sum(each.numel() for each in training.model.parameters()),
        optimizer=None if training is None else type(training.optimizer).__name__,
        samples=seen.samples,
        tokens=seen.tokens,
        precision=None if request.keys is None else request.sizes.precision,
        recomputes=training is not None and recomputes(training.model),
        step_s=step_s,
        unit=seen.unit,
        rate_per_s=None if seen.amount is None else seen.amount / step_s.median,
        flop=seen.flop,
        peak_bytes=seen.peak_bytes,
        memory=seen.memory,
        usage=seen.usage,
        what_if=None,
        notes=seen.gaps,
        is_interrupted=setting.stop.is_asked,
    )


def _inner(model: Any) -> Any:
    """The model under what distributes or compiles it."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    return getattr(inner, "_orig_mod", inner)
