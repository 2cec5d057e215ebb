"""The loop of training: one record a step. Logs, draws and saves nothing; whoever asks for records does."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from escala.measurement.bench.rounds import Stop
from escala.model.flops import model_flop, reference_peak_flop_per_s, utilisation
from escala.model.problem import Problem
from escala.parallel.batch import Batch
from escala.parallel.local_steps import LocalSteps
from escala.parallel.mesh import Mesh
from escala.parallel.step import Outcome, Step
from escala.training.job import Job
from escala.training.noise import Lengths, Noise
from escala.training.rates import learning_rate
from escala.training.steprecord import STEP_SCHEMA, StepRecord

Observer = Callable[[int], AbstractContextManager[Any]]
"""A context for a step, by its number of this session from 0; what is observed is slower."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a run is: steps and samples so far, also those before it was resumed; noise of this session."""

    step: int = 0
    samples: int = 0
    noise: Noise = field(default_factory=Noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one rank works with: the job, its parts of the module, its samples, and how far it is."""

    job: Job
    mesh: Mesh
    step: Step
    draw: Callable[[], Batch]
    done: Progress
    agree: LocalSteps | None = None


def steps(run: Run, stop: Stop, observe: Observer, observed: range) -> Iterator[StepRecord]:
    """Steps until the last one, or until any rank is asked to stop: the step that is running ends first."""
    began_s, session = time.perf_counter(), 0
    flop = model_flop(run.job.problem.workload)
    is_over = _asked(stop)
    while run.done.step < run.job.choices.steps and not is_over:
        is_observed = session in observed
        with observe(session) if is_observed else nullcontext():
            outcome, step_s, wait_s = _one(run, stop)
        run.done.step += 1
        run.done.samples += run.job.global_batch
        run.done.noise = _noise(run, outcome)
        session += 1
        is_over = _ends(run, outcome, stop)
        yield _record(run, outcome, (step_s, wait_s), (began_s, session), flop, is_observed=is_observed)


def _noise(run: Run, outcome: Outcome) -> Noise:
    """What gradients of parts of the step and of the whole tell of noise, beside the steps before."""
    if outcome.parts is None or outcome.part_squared_norm is None or outcome.is_skipped:
        return run.done.noise
    lengths = Lengths(
        few=run.job.global_batch / outcome.parts,
        many=run.job.global_batch,
        few_squared_norm=outcome.part_squared_norm,
        many_squared_norm=outcome.gradient_norm**2,
    )
    return run.done.noise.after(lengths)


def _ends(run: Run, outcome: Outcome, stop: Stop) -> bool:
    """Whether a rank wished to stop when the step ended; replicas with local steps ask when they meet."""
    if run.job.plan.local_steps == 1:
        return outcome.is_wished
    return run.done.step % run.job.plan.local_steps == 0 and _asked(stop)


def _asked(stop: Stop) -> bool:
    """Whether a person asked any rank to stop; all ranks hear the same."""
    asked = torch.tensor([float(stop.is_asked)])
    if dist.get_world_size() > 1:
        dist.all_reduce(asked, dist.ReduceOp.MAX)
    return bool(asked)


def _one(run: Run, stop: Stop) -> tuple[Outcome, float, float]:
    """One step: what it did, its seconds, and those before its samples were there."""
    job, began_s = run.job, time.perf_counter()
    batch = run.draw().to(run.mesh.device)
    drawn_s = time.perf_counter()
    share = learning_rate(job.choices.rate, run.done.step, job.choices.steps) / job.choices.rate.highest
    outcome = run.step(
        batch, share, wish=stop.is_asked
    )  # its loss was read back, so the device has done the step
    if run.agree is not None:
        run.agree(run.done.step + 1)
    return outcome, time.perf_counter() - began_s, drawn_s - began_s


def mfu(problem: Problem, flop: float, step_s: float) -> float:
    """Model FLOP of a step / (seconds * devices * peak), by the function that predicts it."""
    devices, peak = np.array([problem.cluster.devices]), reference_peak_flop_per_s(problem)
    return float(utilisation(flop, np.array([step_s]), devices, peak)[0])


def _record(
    run: Run,
    outcome: Outcome,
    seconds: tuple[float, float],
    clock: tuple[float, int],
    flop: float,
    *,
    is_observed: bool,
) -> StepRecord:
    job, (step_s, wait_s), (began_s, session) = run.job, seconds, clock
    elapsed_s = time.perf_counter() - began_s
    noise = run.done.noise.estimate
    return StepRecord(
        schema=STEP_SCHEMA,
        step=run.done.step,
        samples=run.done.samples,
        loss=outcome.loss,
        learning_rate=learning_rate(job.choices.rate, run.done.step - 1, job.choices.steps),
        gradient_norm=outcome.gradient_norm,
        step_s=step_s,
        wait_s=wait_s,
        tokens_per_s=job.global_batch * job.tokens_per_sample / step_s,
        mfu=mfu(job.problem, flop, step_s),
        peak_bytes=peak_bytes(run.mesh.device),
        elapsed_s=elapsed_s,
        left_s=elapsed_s / session * (job.choices.steps - run.done.step),
        is_observed=is_observed,
        is_skipped=outcome.is_skipped,
        noise_batch=None if noise is None else noise.batch,
        noise_low=None if noise is None else noise.low,
        noise_high=None if noise is None else noise.high,
        noise_steps=run.done.noise.steps,
    )


def peak_bytes(device: torch.device) -> float | None:
    """The most that the device's allocator held on this rank; None on a processor."""
    return float(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None
