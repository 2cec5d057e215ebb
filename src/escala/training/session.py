"""One session of a run on one rank: trains, evaluates, saves, concludes. Prints nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from escala.errors import InvalidInput
from escala.inputs import reason
from escala.measurement.bench.rounds import Stop, stoppable
from escala.measurement.cores import own_cores
from escala.measurement.job.trace import collect
from escala.measurement.sampling.others import Others, OtherWork
from escala.parallel.batch import Batch
from escala.parallel.step import evaluate
from escala.training.checkpoint import CHECKPOINTS, Checkpoints, TrainState, latest
from escala.training.conclude import Trained, concluded
from escala.training.data.feed import Feed
from escala.training.data.tensors import batch_of
from escala.training.job import Job
from escala.training.launch.join import BACKENDS, join, store_of
from escala.training.launch.place import Place
from escala.training.launch.watchdog import Watchdog
from escala.training.loop import Progress, Run, steps
from escala.training.observe import LEAST, Observed, observed_steps
from escala.training.ready import Ready, Setting, ready
from escala.training.sinks import sinks
from escala.training.steprecord import StepRecord

TRACES: Final = "traces"
PATIENCE: Final = timedelta(minutes=10)
"""Of ranks for each other: one may compile, or prepare data, while the others wait."""
EVALUATED: Final = 8
"""Global batches of held-out samples that an evaluation takes."""
LOSSES: Final = 100
"""Losses of the last steps that a checkpoint keeps."""


def train(job: Job, plan_document: dict[str, Any], setting: Setting) -> Trained | None:
    """Train until the last step or until somebody stops it; what it came to, in the first rank."""
    with joined(setting.place, setting.device), stoppable() as stop:
        return _Session(ready=ready(job, plan_document, setting), setting=setting).trained(stop)


@contextmanager
def joined(place: Place, device: torch.device) -> Iterator[None]:
    """This process among all ranks while this lasts."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with own_cores(place.environment) if device.type == "cpu" else nullcontext():
        try:
            join(place, BACKENDS[device.type], patience=PATIENCE)
        except (RuntimeError, ValueError) as error:
            raise InvalidInput(f"the ranks did not meet ({reason(error)}); check the launch") from None
        try:
            yield
        finally:
            dist.destroy_process_group()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    ready: Ready
    setting: Setting

    def trained(self, stop: Stop) -> Trained | None:
        """All steps, each told, with evaluations and checkpoints between them."""
        job, records = self.ready.job, []
        watched = observed_steps(job.choices.steps - self.ready.state.step, is_wanted=job.choices.is_observed)
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
            watch.step(self.ready.state.step + 1)
            others = Others(os.getppid())  # who started this rank started the others of the node
            for record in steps(run, stop, observer, watched):
                with watch.phase("evaluating"):
                    told = self._evaluated(record)
                records.append(told)
                tell(told)
                self.setting.told(told)
                with watch.phase("saving"):
                    self._saved(keep, run.done, records)
                watch.step(record.step + 1)
            other_work = others.work()
            with watch.phase("saving the last step"):
                self._saved_last(keep, run.done, records)
        is_observed = len(records) > LEAST - 5 and bool(watched)
        return self._concluded(records, observer, other_work, is_observed=is_observed)

    def _observer(self) -> Observed:
        folder = self.ready.job.folder / TRACES
        folder.mkdir(parents=True, exist_ok=True)
        return Observed(
            folder=folder,
            rank=self.setting.place.rank,
            device=self.ready.mesh.device,
            chunks=self.ready.parallel.chunks,
            optimizer=self.ready.optimizer,
        )

    @contextmanager
    def _sinks(self) -> Iterator[Callable[[StepRecord], None]]:
        if self.setting.place.rank:
            yield lambda record: None
            return
        facts = {
            "network": self.ready.job.problem.workload.network.name,
            "seed": self.ready.job.choices.seed,
            **self._choices(),
        }
        with sinks(self.ready.job.folder, self.ready.job.choices.trackers, facts) as tell:
            yield tell

    def _choices(self) -> dict[str, Any]:
        plan = self.ready.job.plan
        names = ("dp", "zero", "tp", "pp", "cp", "ep", "micro_batch", "micro_batches", "local_steps")
        return {name: getattr(plan, name) for name in names}

    @contextmanager
    def _run(self) -> Iterator[Run]:
        share = self.ready.share
        with Feed(self.ready.data.train, share, batch_of, cursor=self.ready.state.samples) as feed:
            done = Progress(step=self.ready.state.step, samples=self.ready.state.samples)
            yield Run(
                job=self.ready.job,
                mesh=self.ready.mesh,
                step=self.ready.step,
                draw=feed.step,
                done=done,
                agree=self.ready.agree,
            )

    def _evaluated(self, record: StepRecord) -> StepRecord:
        every, held_out = self.ready.job.choices.evaluate_every, self.ready.data.held_out
        is_due = (every and record.step % every == 0) or record.step == self.ready.job.choices.steps
        if held_out is None or not is_due:
            return record
        if record.step == self.ready.job.choices.steps:
            self._settle(record.step)  # what a run comes to is what all replicas hold
        size = self.ready.job.global_batch
        count = max(min(len(held_out) // size, EVALUATED), 1)
        losses = [self._held_out_loss(number * size) for number in range(count)]
        return replace(record, held_out_loss=sum(losses) / count)

    def _held_out_loss(self, first: int) -> float:
        share = self.ready.share
        assert self.ready.data.held_out is not None
        samples = self.ready.data.held_out.batch(share.first(first), share.samples)
        batch: Batch = batch_of(samples).to(self.ready.mesh.device)
        return evaluate(self.ready.parallel, batch)

    def _is_saved(self, step: int) -> bool:
        every = self.ready.job.choices.saving.every_steps
        return every > 0 and step % every == 0

    def _saved(self, keep: Checkpoints, done: Progress, records: list[StepRecord]) -> None:
        if self._is_saved(done.step):
            self._settle(done.step)
            keep.save(self._now(done, records))

    def _saved_last(self, keep: Checkpoints, done: Progress, records: list[StepRecord]) -> None:
        """The step with which the session ends."""
        is_wanted = self.ready.job.choices.saving.at_end and not self._is_saved(done.step)
        if is_wanted and done.step > self.ready.state.step:
            self._settle(done.step)
            keep.save(self._now(done, records))

    def _settle(self, step: int) -> None:
        """All replicas hold the same, so that a checkpoint is of all of them."""
        if self.ready.agree is not None:
            self.ready.agree.settle(step)

    def _now(self, done: Progress, records: list[StepRecord]) -> TrainState:
        losses = tuple(each.loss for each in records[-LOSSES:])
        return replace(self.ready.state, step=done.step, samples=done.samples, losses=losses)

    def _concluded(
        self,
        records: list[StepRecord],
        observer: Observed,
        other_work: OtherWork | None,
        *,
        is_observed: bool,
    ) -> Trained | None:
        peak = _most(observer.peak_bytes)
        if is_observed:
            collect(observer.file, self.setting.place.rank, dist.get_world_size())
        if self.setting.place.rank:
            return None
        self.setting.progress("comparing with the prediction", float("nan"))
        return concluded(
            self.ready.job,
            records,
            peak_bytes=peak,
            traces=observer.folder if is_observed else None,
            is_interrupted=not records or records[-1].step < self.ready.job.choices.steps,
            checkpoint=latest(self.ready.job.folder / CHECKPOINTS),
            notes=self.ready.notes,
            other_work=other_work,
        )


def _most(peak_bytes: float | None) -> float | None:
    """The highest peak of any rank."""
    found: list[float | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, peak_bytes)
    return max((each for each in found if each is not None), default=None)
