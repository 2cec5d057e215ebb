"""The schedule that runs the stages of a pipeline, and what their ranks exchange once a step.

Forward and backward follow the schedules of PyTorch; shapes are told beforehand. Gradients of replicas and of
weights that two stages share are added up after the last micro-batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
)

from escala.model.plan import Schedule
from escala.model.stages import rank_stages
from escala.parallel.batch import Batch
from escala.parallel.cutting import Stages, stream_format
from escala.parallel.formats import AUTOCAST
from escala.parallel.gradients import DUPLICATE
from escala.parallel.loss import loss_sum
from escala.parallel.mesh import PIPELINE, Mesh
from escala.parallel.replicas import average, local_gradient

SCHEDULES: Final[Mapping[Schedule, Any]] = {
    Schedule.GPIPE: ScheduleGPipe,
    Schedule.ONE_F_ONE_B: Schedule1F1B,
    Schedule.INTERLEAVED: ScheduleInterleaved1F1B,
    Schedule.ZERO_BUBBLE_V: ScheduleZBVZeroBubble,
}
SINGLE: Final = (Schedule.GPIPE, Schedule.ONE_F_ONE_B)
"""Schedules of one stage a rank, which they are not given in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One weight that the first and the last stage hold: its copies here, and the rank that has the other.

    The two exchange messages in the group of their pipeline, so that no rank has to make a group for them.
    """

    copies: tuple[nn.Parameter, ...]
    other: int | None
    group: dist.ProcessGroup

    def add(self) -> None:
        """Give both copies the sum of their gradients."""
        gradients = [local_gradient(each) for each in self.copies]
        total = torch.stack(gradients).sum(0)
        if self.other is not None:
            arriving = torch.empty_like(total)
            messages = [
                dist.P2POp(dist.isend, total, self.other, self.group),
                dist.P2POp(dist.irecv, arriving, self.other, self.group),
            ]
            for message in dist.batch_isend_irecv(messages):
                message.wait()
            total = total + arriving
        for gradient in gradients:
            gradient.copy_(total)


class Pipeline:
    """The stages of one rank and the schedule that runs them."""

    def __init__(self, stages: Stages, mesh: Mesh) -> None:
        self.stages, self.mesh = stages, mesh
        self.ranks = stage_ranks(mesh)
        self.links = links_of(stages, mesh)
        self.schedules: dict[torch.Size, Any] = {}
        self.scale = torch.ones((), device=mesh.device)

    def run(self, batches: Sequence[Batch], scale: torch.Tensor) -> list[torch.Tensor]:
        """Forward and backward of all micro-batches: their loss sums * scale, on ranks of the last stage."""
        self.scale = scale
        shape = batches[0].inputs.shape
        if shape not in self.schedules:
            self.schedules[shape] = self._schedule(batches[0].inputs)
        words = [self._words(each) for each in batches]
        together = {name: torch.cat([each[name] for each in words]) for name in words[0]}
        inputs = torch.cat([each.inputs for each in batches])
        targets = torch.cat([each.targets for each in batches])
        losses: list[torch.Tensor] = []
        self.schedules[shape].step(inputs, target=targets, losses=losses, return_outputs=False, **together)
        self._exchange()
        return [each.detach() for each in losses]

    def evaluate(self, batches: Sequence[Batch]) -> list[torch.Tensor]:
        """Loss sums of micro-batches without backward, on ranks of the last stage."""
        made: list[torch.Tensor] = []
        with torch.no_grad():
            for number, chunk in self.stages.held():
                made = self._forward(number, chunk, batches, made)
        for module in (each for chunk in self.stages.chunks for each in chunk.modules()):
            if isinstance(module, FSDPModule):
                module.reshard()  # no backward comes that would
        if self.stages.count - 1 not in self.stages.numbers:
            return []
        return [loss_sum(logits, each.targets) for logits, each in zip(made, batches, strict=True)]

    def _words(self, batch: Batch) -> dict[str, torch.Tensor]:
        """What stages are told beside the stream; those of a chain nothing."""
        return words_of(batch) if self.stages.shapes is None else {}

    def _schedule(self, inputs: torch.Tensor) -> Any:
        """The schedule for micro-batches of one shape; all ranks of the pipeline make it at the same step."""
        plan = self.mesh.plan
        made = [self._stage(number, chunk, inputs) for number, chunk in self.stages.held()]
        given = made[0] if plan.schedule in SINGLE else made
        return SCHEDULES[plan.schedule](given, plan.micro_batches, loss_fn=self._loss, scale_grads=False)

    def _stage(self, number: int, chunk: nn.Module, inputs: torch.Tensor) -> PipelineStage:
        first = torch.empty_like(inputs, device="meta")
        return PipelineStage(
            chunk,
            number,
            self.stages.count,
            self.mesh.device,
            input_args=first if number == 0 else self._stream(number - 1, chunk, inputs),
            output_args=self._stream(number, chunk, inputs),
            group=self.mesh.group(PIPELINE),
        )

    def _stream(self, number: int, chunk: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        """What a stage sends: (rows, tokens of this rank, hidden), in the format of gathered weights."""
        plan = self.mesh.plan
        if self.stages.shapes is not None:
            size, dtype = self.stages.shapes.of(inputs)[number], stream_format(plan)
            return torch.empty(size, dtype=dtype, device="meta", requires_grad=True)
        tokens = inputs.shape[1] // plan.tp if plan.sp else inputs.shape[1]
        cast = AUTOCAST.get(plan.precision) if isinstance(chunk, FSDPModule) else None
        size = torch.Size((inputs.shape[0], tokens, self.stages.width))
        return torch.empty(size, dtype=cast or torch.float32, device="meta", requires_grad=True)

    def _loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_sum(logits, targets) * self.scale

    def _exchange(self) -> None:
        """Average gradients over replicas, where FSDP has not done so, and add those of tied weights."""
        for chunk in self.stages.chunks:
            if not isinstance(chunk, FSDPModule) and self.mesh.size(*self.mesh.together) > 1:
                average(chunk.parameters(), self.mesh.group(*self.mesh.together))
        for link in self.links:
            link.add()

    def _forward(
        self, number: int, chunk: nn.Module, batches: Sequence[Batch], before: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """One stage on all micro-batches: from the stage before it, on this rank or another, to the next."""
        own, group = dist.get_rank(), self.mesh.group(PIPELINE)
        source, target = self.ranks.get(number - 1), self.ranks.get(number + 1)
        made, sent = [], []
        for place, batch in enumerate(batches):
            given = batch.inputs
            if source == own:
                given = before[place]
            elif source is not None:
                given = torch.empty_like(self._stream(number - 1, chunk, given), device=self.mesh.device)
                dist.recv(given, source, group=group)
            made.append(chunk(given, **self._words(batch)))
            if target not in (None, own):
                sent.append(dist.isend(made[-1], target, group=group))
        for message in sent:
            message.wait()
        return made


def pipeline_of(stages: Stages, mesh: Mesh) -> Pipeline | None:
    """The schedule over the stages of this rank; None without a pipeline."""
    return None if mesh.plan.pp == 1 else Pipeline(stages, mesh)


def words_of(batch: Batch) -> dict[str, torch.Tensor]:
    """What every stage is told: positions, which a later one cannot count by itself, and documents."""
    rows, tokens = batch.inputs.shape
    places = torch.arange(tokens, device=batch.inputs.device).expand(rows, tokens)
    words = {"position_ids": places if batch.positions is None else batch.positions}
    return words if batch.documents is None else {**words, "documents": batch.documents}


def stage_ranks(mesh: Mesh) -> dict[int, int]:
    """The rank in the world of every stage of this rank's pipeline."""
    plan, line = mesh.plan, dist.get_process_group_ranks(mesh.group(PIPELINE))
    return {
        number: line[place]
        for place in range(plan.pp)
        for number in rank_stages(place, plan.pp, plan.virtual_stages, plan.schedule)
    }


def links_of(stages: Stages, mesh: Mesh) -> tuple[Link, ...]:
    """Weights that the first and the last stage share; the copy of the last one is marked."""
    held, last = dict(stages.held()), stages.count - 1
    if not {0, last} & set(held):
        return ()
    ranks = stage_ranks(mesh)
    other = next((ranks[end] for end in (0, last) if end not in held), None)
    links = []
    for tie in stages.ties:
        names = {0: tie.name, last: tie.duplicate}
        copies = tuple(parameter_of(held[end], name) for end, name in names.items() if end in held)
        links.append(Link(copies=copies, other=other, group=mesh.group(PIPELINE)))
        if last in held:
            setattr(copies[-1], DUPLICATE, True)
    return tuple(links)


def parameter_of(chunk: nn.Module, name: str) -> nn.Parameter:
    """A parameter as it is held, which may not be as its module sees it."""
    owner, _, own = name.rpartition(".")
    found = chunk.get_submodule(owner)._parameters[own]
    assert found is not None, name
    return found
