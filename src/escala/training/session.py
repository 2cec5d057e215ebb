"""One session of a run on one rank: builds, resumes, trains, evaluates, saves, concludes. Prints nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from escala.errors import InvalidInput
from escala.inputs import reason
from escala.measurement.bench.host import host_facts, usable_cores
from escala.measurement.bench.rounds import Stop, stoppable
from escala.measurement.job.trace import collect
from escala.model.workload import OptimizerKind
from escala.parallel.batch import Batch
from escala.parallel.compression import Compression
from escala.parallel.local_steps import LocalSteps
from escala.parallel.lora import adapt
from escala.parallel.mesh import DATA, Mesh, mesh_of
from escala.parallel.optimizers import optimizer_of
from escala.parallel.parallelize import Parallel, parallelize
from escala.parallel.parts import parts_of
from escala.parallel.step import Step, evaluate
from escala.training.checkpoint import Checkpoints, TrainState, latest, load
from escala.training.conclude import Trained, concluded
from escala.training.data.feed import Feed
from escala.training.data.share import Share
from escala.training.data.tensors import batch_of
from escala.training.job import Job
from escala.training.launch.join import join, store_of
from escala.training.launch.place import Place
from escala.training.launch.watchdog import Watchdog
from escala.training.loop import Progress, Run, steps
from escala.training.modules import built, facts_of
from escala.training.observe import LEAST, Observed, observed_steps
from escala.training.opened import Opened, opened
from escala.training.sinks import sinks
from escala.training.steprecord import StepRecord

CHECKPOINTS: Final = "checkpoints"
TRACES: Final = "traces"
PATIENCE: Final = timedelta(minutes=10)
"""Of ranks for each other: one may compile, or prepare data, while the others wait."""
BACKENDS: Final = {"cuda": "cpu:gloo,cuda:nccl", "cpu": "gloo"}
EVALUATED: Final = 8
"""Global batches of held-out samples that an evaluation takes."""
LOSSES: Final = 100
"""Losses of the last steps that a checkpoint keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a session runs, and whom it tells of every step and of what is going on."""

    device: torch.device
    place: Place
    told: Callable[[StepRecord], None]
    progress: Callable[[str, float], None]


def train(job: Job, plan_document: dict[str, Any], setting: Setting) -> Trained | None:
    """Train until the last step or until somebody stops it; what it came to, in the first rank."""
    with joined(setting.place, setting.device), stoppable() as stop:
        return _Session.of(job, plan_document, setting).trained(stop)


@contextmanager
def joined(place: Place, device: torch.device) -> Iterator[None]:
    """This process among all ranks while this lasts."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        join(place, BACKENDS[device.type], patience=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(f"the ranks did not meet ({reason(error)}); check the launch") from None
    try:
        yield
    finally:
        dist.destroy_process_group()


def _in_turn(job: Job, setting: Setting) -> Opened:
    """The samples; the first rank may have to make them, then the first one of every other node."""
    threads = max(usable_cores(host_facts()) // setting.place.local_ranks, 1)
    for is_due in (setting.place.rank == 0, setting.place.local_rank == 0, True):
        if is_due:
            found = opened(job, threads, setting.progress)
        dist.barrier()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    job: Job
    setting: Setting
    mesh: Mesh
    parallel: Parallel
    optimizer: Any
    step: Step
    data: Opened
    agree: LocalSteps | None
    state: TrainState
    notes: tuple[str, ...]

    @classmethod
    def of(cls, job: Job, plan_document: dict[str, Any], setting: Setting) -> "_Session":
        """Everything that a step needs, from the newest checkpoint if there is one."""
        setting.progress("reading data", float("nan"))
        data = _in_turn(job, setting)
        setting.progress("building", float("nan"))
        module, blocks = built(job.choices.module, job.problem.workload.network, job.choices.seed)
        config = facts_of(module, job.problem.workload.network)
        mesh = mesh_of(job.plan, setting.device)
        module.to(setting.device)
        adapt(module, parts_of(module, blocks), job.problem.workload, job.plan.precision)
        compression = Compression(job.choices.update.compression)
        parallel = parallelize(module, job.plan, mesh, blocks=blocks, compression=compression)
        optimizer = optimizer_of(
            parallel,
            job.problem.workload.optimizer.kind,
            rate=job.choices.rate.highest,
            **_settings(job),
        )
        agree = None
        if job.plan.local_steps > 1:
            agree = LocalSteps(parallel.chunks, mesh, job.choices.outer)
        step = Step(
            parallel,
            optimizer,
            clip_norm=job.choices.update.clip_norm,
            watches_parts=job.choices.watches_noise,
        )
        state = TrainState(
            chunks=parallel.chunks if agree is None else (*parallel.chunks, agree.kept),
            optimizer=optimizer,
            scaler=step.scaler,
            seed=job.choices.seed,
            plan=plan_document,
            config=config,
        )
        newest = latest(job.folder / CHECKPOINTS)
        resumed = None if newest is None else load(newest, state)
        if agree is not None:
            agree.resume()
        return cls(
            job=job,
            setting=setting,
            mesh=mesh,
            parallel=parallel,
            optimizer=optimizer,
            step=step,
            data=data,
            agree=agree,
            state=state if resumed is None else resumed.state,
            notes=(() if resumed is None else (_told(resumed.state), *resumed.notes)) + _unseen(job, step),
        )

    def trained(self, stop: Stop) -> Trained | None:
        """All steps, each told, with evaluations and checkpoints between them."""
        job, records = self.job, []
        watched = observed_steps(job.choices.steps - self.state.step, is_wanted=job.choices.is_observed)
        observer = self._observer()
        with ExitStack() as stack:
            keep = stack.enter_context(
                Checkpoints(
                    job.folder / CHECKPOINTS,
                    keep=job.choices.saving.keep,
                    is_async=job.choices.saving.is_async,
                )
            )
            tell = stack.enter_context(self._sinks())
            run = stack.enter_context(self._run())
            watch = stack.enter_context(Watchdog(store_of(self.setting.place, "hang"), job.folder))
            watch.step(self.state.step + 1)
            for record in steps(run, stop, observer, watched):
                with watch.phase("evaluating"):
                    told = self._evaluated(record)
                records.append(told)
                tell(told)
                self.setting.told(told)
                with watch.phase("saving"):
                    self._saved(keep, run.done, records)
                watch.step(record.step + 1)
            with watch.phase("saving the last step"):
                self._saved_last(keep, run.done, records)
        return self._concluded(records, observer, is_observed=len(records) > LEAST - 5 and bool(watched))

    def _observer(self) -> Observed:
        folder = self.job.folder / TRACES
        folder.mkdir(parents=True, exist_ok=True)
        return Observed(
            folder=folder,
            rank=self.setting.place.rank,
            device=self.mesh.device,
            chunks=self.parallel.chunks,
            optimizer=self.optimizer,
        )

    @contextmanager
    def _sinks(self) -> Iterator[Callable[[StepRecord], None]]:
        if self.setting.place.rank:
            yield lambda record: None
            return
        facts = {
            "network": self.job.problem.workload.network.name,
            "seed": self.job.choices.seed,
            **self._choices(),
        }
        with sinks(self.job.folder, self.job.choices.trackers, facts) as tell:
            yield tell

    def _choices(self) -> dict[str, Any]:
        plan = self.job.plan
        names = ("dp", "zero", "tp", "pp", "cp", "ep", "micro_batch", "micro_batches", "local_steps")
        return {name: getattr(plan, name) for name in names}

    @contextmanager
    def _run(self) -> Iterator[Run]:
        share = Share(
            global_batch=self.job.global_batch, rank=self.mesh.place(*DATA), ranks=self.mesh.size(*DATA)
        )
        with Feed(self.data.train, share, batch_of, cursor=self.state.samples) as feed:
            done = Progress(step=self.state.step, samples=self.state.samples)
            yield Run(
                job=self.job, mesh=self.mesh, step=self.step, draw=feed.step, done=done, agree=self.agree
            )

    def _evaluated(self, record: StepRecord) -> StepRecord:
        every, held_out = self.job.choices.evaluate_every, self.data.held_out
        is_due = (every and record.step % every == 0) or record.step == self.job.choices.steps
        if held_out is None or not is_due:
            return record
        size = self.job.global_batch
        count = max(min(len(held_out) // size, EVALUATED), 1)
        losses = [self._held_out_loss(number * size) for number in range(count)]
        return replace(record, held_out_loss=sum(losses) / count)

    def _held_out_loss(self, first: int) -> float:
        share = Share(
            global_batch=self.job.global_batch, rank=self.mesh.place(*DATA), ranks=self.mesh.size(*DATA)
        )
        assert self.data.held_out is not None
        samples = self.data.held_out.batch(share.first(first), share.samples)
        batch: Batch = batch_of(samples).to(self.mesh.device)
        return evaluate(self.parallel, batch)

    def _is_saved(self, step: int) -> bool:
        every = self.job.choices.saving.every_steps
        return every > 0 and step % every == 0

    def _saved(self, keep: Checkpoints, done: Progress, records: list[StepRecord]) -> None:
        if self._is_saved(done.step):
            self._settle(done.step)
            keep.save(self._now(done, records))

    def _saved_last(self, keep: Checkpoints, done: Progress, records: list[StepRecord]) -> None:
        """The step with which the session ends."""
        is_wanted = self.job.choices.saving.at_end and not self._is_saved(done.step)
        if is_wanted and done.step > self.state.step:
            self._settle(done.step)
            keep.save(self._now(done, records))

    def _settle(self, step: int) -> None:
        """All replicas hold the same, so that a checkpoint is of all of them."""
        if self.agree is not None:
            self.agree.settle(step)

    def _now(self, done: Progress, records: list[StepRecord]) -> TrainState:
        losses = tuple(each.loss for each in records[-LOSSES:])
        return replace(self.state, step=done.step, samples=done.samples, losses=losses)

    def _concluded(
        self, records: list[StepRecord], observer: Observed, *, is_observed: bool
    ) -> Trained | None:
        peak = _most(observer.peak_bytes)
        if is_observed:
            collect(observer.file, self.setting.place.rank, dist.get_world_size())
        if self.setting.place.rank:
            return None
        self.setting.progress("comparing with the prediction", float("nan"))
        return concluded(
            self.job,
            records,
            peak_bytes=peak,
            traces=observer.folder if is_observed else None,
            is_interrupted=not records or records[-1].step < self.job.choices.steps,
            checkpoint=latest(self.job.folder / CHECKPOINTS),
            notes=self.notes,
        )


def _settings(job: Job) -> dict[str, Any]:
    """What the optimizer is told besides its rate: momenta as its kind has them."""
    update, optimizer = job.choices.update, job.problem.workload.optimizer
    if optimizer.kind is OptimizerKind.SGD:
        momentum = update.betas[0] if optimizer.moments else 0.0
        return {"weight_decay": update.weight_decay, "momentum": momentum}
    return {"weight_decay": update.weight_decay, "betas": update.betas}


def _most(peak_bytes: float | None) -> float | None:
    """The highest peak of any rank."""
    found: list[float | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, peak_bytes)
    return max((each for each in found if each is not None), default=None)


def _unseen(job: Job, step: Step) -> tuple[str, ...]:
    if not job.choices.watches_noise or step.parts is not None:
        return ()
    return ("the gradient's noise is seen in the plain data-parallel gradients of several ranks alone",)


def _told(state: TrainState) -> str:
    return f"resumed after step {state.step:,}, {state.samples:,} samples"
