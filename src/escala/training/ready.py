"""Everything that one rank needs before the first step: samples, module, optimizer, the newest checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from escala.errors import InvalidInput
from escala.measurement.bench.host import host_facts, usable_cores
from escala.model.workload import OptimizerKind
from escala.parallel.compression import Compression
from escala.parallel.local_steps import LocalSteps
from escala.parallel.lora import BASE_MODEL, adapt
from escala.parallel.mesh import DATA, REPLICATE, Mesh, mesh_of
from escala.parallel.optimizers import optimizer_of
from escala.parallel.parallelize import Parallel, parallelize
from escala.parallel.parts import parts_of
from escala.parallel.step import Step
from escala.training.checkpoint import CHECKPOINTS, TrainState, latest, load
from escala.training.data.share import Share
from escala.training.job import Job
from escala.training.launch.place import Place
from escala.training.modules import built, facts_of, named_base, refuse_fewer_tokens
from escala.training.opened import Opened, opened
from escala.training.sinks import damage
from escala.training.steprecord import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a session runs, and whom it tells of every step and of what is going on."""

    device: torch.device
    place: Place
    told: Callable[[StepRecord], None]
    progress: Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One rank's parts of a run, as far as its checkpoint had come; `notes` say what to know of that."""

    job: Job
    place: Place
    mesh: Mesh
    parallel: Parallel
    optimizer: torch.optim.Optimizer
    step: Step
    data: Opened
    agree: LocalSteps | None
    state: TrainState
    notes: tuple[str, ...]

    @property
    def share(self) -> Share:
        """The samples of this rank in a step."""
        return Share(
            global_batch=self.job.global_batch, rank=self.mesh.place(*DATA), ranks=self.mesh.size(*DATA)
        )


def ready(job: Job, plan_document: dict[str, Any], setting: Setting) -> Ready:
    """Everything that a step needs, from the newest checkpoint if there is one."""
    setting.progress("reading data", float("nan"))
    data = _in_turn(job, setting)
    setting.progress("building", float("nan"))
    parallel, config, adapter = _parallel(job, setting.device)
    optimizer = optimizer_of(
        parallel, job.problem.workload.optimizer.kind, rate=job.choices.rate.highest, **_settings(job)
    )
    update, is_local = job.choices.update, job.plan.local_steps > 1
    step = Step(parallel, optimizer, clip_norm=update.clip_norm, watches_parts=job.choices.watches_noise)
    agree = LocalSteps(parallel.chunks, parallel.mesh, job.choices.outer) if is_local else None
    state = TrainState(
        chunks=parallel.chunks if agree is None else (*parallel.chunks, agree.kept),
        optimizer=optimizer,
        scaler=step.scaler,
        seed=job.choices.seed,
        plan=plan_document,
        config=config,
        adapter=adapter,
        replica=parallel.mesh.place(REPLICATE) if is_local else None,
    )
    state, notes = _resumed(job, state, agree)
    return Ready(
        job=job,
        place=setting.place,
        mesh=parallel.mesh,
        parallel=parallel,
        optimizer=optimizer,
        step=step,
        data=data,
        agree=agree,
        state=state,
        notes=(*notes, *damage(job.folder), *_elsewhere(job, setting.device), *_unseen(job, step)),
    )


def _parallel(job: Job, device: torch.device) -> tuple[Parallel, dict[str, Any], dict[str, Any]]:
    """The module under the plan, and what exports need of it and of its adapters."""
    choices, network = job.choices, job.problem.workload.network
    module, blocks = built(choices.module, network, choices.seed)
    refuse_fewer_tokens(module, network)
    config = facts_of(module, network)
    mesh = mesh_of(job.plan, device)
    module.to(device)
    adapter = adapt(module, parts_of(module, blocks), job.problem.workload, job.plan.precision)
    if adapter:
        adapter[BASE_MODEL] = named_base(choices.module)
    compression = Compression(choices.update.compression)
    return parallelize(module, job.plan, mesh, blocks=blocks, compression=compression), config, adapter


def _resumed(job: Job, state: TrainState, agree: LocalSteps | None) -> tuple[TrainState, tuple[str, ...]]:
    """The state of the newest checkpoint, and what to know of it; as it is where there is none."""
    newest = latest(job.folder / CHECKPOINTS)
    if newest is None:
        return state, ()
    resumed = load(newest, state)
    if resumed.state.step >= job.choices.steps:
        raise InvalidInput(
            f"{job.folder} has {resumed.state.step:,} of {job.choices.steps:,} steps already; "
            "give a larger --steps to go on"
        )
    notes = (_told(resumed.state), *resumed.notes)
    if agree is not None:
        agree.resume()
    return resumed.state, notes


def _in_turn(job: Job, setting: Setting) -> Opened:
    """The samples; the first rank may have to make them, then the first one of every other node."""
    threads = max(usable_cores(host_facts()) // setting.place.local_ranks, 1)
    found: Opened | None = None
    for is_due in (setting.place.rank == 0, setting.place.local_rank == 0, True):
        fault = None
        try:
            found = opened(job, threads, setting.progress) if is_due else found
        except InvalidInput as error:
            fault = str(error)
        _agree(fault)
    assert found is not None
    return found


def _agree(fault: str | None) -> None:
    """Raise on all ranks what any rank found: none is left to wait for one that has ended."""
    every: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(every, fault)
    for each in every:
        if each is not None:
            raise InvalidInput(each)


def _settings(job: Job) -> dict[str, Any]:
    """What the optimizer is told besides its rate: momenta as its kind has them."""
    update, optimizer = job.choices.update, job.problem.workload.optimizer
    if optimizer.kind is OptimizerKind.SGD:
        momentum = update.betas[0] if optimizer.moments else 0.0
        return {"weight_decay": update.weight_decay, "momentum": momentum}
    return {"weight_decay": update.weight_decay, "betas": update.betas}


def _elsewhere(job: Job, device: torch.device) -> tuple[str, ...]:
    """The plan's machine, where it cannot be this one: a processor is only planned by its own bench."""
    if device.type != "cpu" or job.problem.cluster.place is not None:
        return ()
    return (f"predicted for {job.problem.accelerator.name}, run on this machine's processor: no comparison",)


def _unseen(job: Job, step: Step) -> tuple[str, ...]:
    if not job.choices.watches_noise or step.parts is not None:
        return ()
    return ("the gradient's noise is seen in the plain data-parallel gradients of several ranks alone",)


def _told(state: TrainState) -> str:
    return f"resumed after step {state.step:,}, {state.samples:,} samples"
