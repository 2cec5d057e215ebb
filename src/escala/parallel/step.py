"""One optimizer step of a module under a plan: micro-batches, gradients of all ranks, clipping, update.

Losses and gradients are sums over the targets of all ranks / their number, so that they are the same under
every layout. Reads no clock and no file; the learning rate of each step is the caller's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from escala.model.plan import Precision
from escala.parallel.accumulate import autocast, learn, split
from escala.parallel.batch import Batch
from escala.parallel.context import local_part
from escala.parallel.gradients import Held, held
from escala.parallel.loss import answer, loss_sum, target_count
from escala.parallel.mesh import PIPELINE, TENSOR, Mesh
from escala.parallel.parallelize import Parallel
from escala.parallel.partnorms import part_norms
from escala.parallel.scaler import Scaler

CLIP_EPSILON: Final = 1e-6
"""Added to the norm that is clipped, as torch.nn.utils.clip_grad_norm_ does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a step did: mean loss over all targets of all ranks, norm of the gradient before clipping.

    With local steps both are those of this rank's replica.

    A step whose fp16 gradients overflow is skipped: weights stay, the norm is not finite.
    `part_squared_norm` is the mean squared norm of the gradients of equal parts, `parts` of which make the
    step; None where it was not asked for or cannot be seen. `is_wished` is true where any rank had a wish.
    """

    loss: float
    gradient_norm: float
    targets: int
    is_skipped: bool
    is_wished: bool = False
    parts: int | None = None
    part_squared_norm: float | None = None


class Step:
    """Trains what one rank holds of a module: called with the rank's samples of a whole step."""

    def __init__(
        self,
        parallel: Parallel,
        optimizer: torch.optim.Optimizer,
        *,
        clip_norm: float | None = None,
        watches_parts: bool = False,
    ) -> None:
        self.parallel, self.optimizer, self.clip_norm = parallel, optimizer, clip_norm
        self.parameters = parallel.parameters()
        self.scaler = Scaler() if parallel.plan.precision is Precision.FP16 else None
        self.parts = part_norms(parallel) if watches_parts else None
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])

    def __call__(self, batch: Batch, rate: float = 1.0, *, wish: bool = False) -> Outcome:
        """Learn from one step's samples, at a share of the optimizer's learning rate.

        A `wish` of this rank, such as to stop, travels with the loss: all ranks hear of it at no cost.
        """
        plan, mesh = self.parallel.plan, self.parallel.mesh
        micro_batches = split(local_part(batch, mesh), plan.micro_batches)
        count = Count(self.parallel, micro_batches)
        raised = self.scaler.factor if self.scaler else 1.0
        # times the ranks, since what they hold of a gradient is averaged over them
        whole = mesh.size(*mesh.together) * raised
        loss = learn(self.parallel, micro_batches, lambda: whole / count.targets, self._watch_first)
        gradients = held(self.parameters, mesh)
        told = Told(self._numbers(loss / whole, gradients, wish), mesh)
        norm = told.norm(is_whole=gradients.is_whole(mesh))
        is_skipped = self.scaler is not None and self.scaler.learn(norm.item())
        if not is_skipped:
            self._update(gradients, norm / raised, raised, rate)
        self.optimizer.zero_grad()
        loss, _, part, wishes = told.totals
        numbers = [loss, norm / raised, count.targets.double(), part / raised**2, wishes]
        return self._outcome(numbers, is_skipped=is_skipped)

    def _numbers(self, loss: torch.Tensor, gradients: Held, wish: bool) -> torch.Tensor:
        """This rank's share of loss, squared norm of the gradient, that of its parts, and wishes."""
        mesh = self.parallel.mesh
        part = torch.zeros_like(loss).double() if self.parts is None else self.parts.taken()
        wishes = torch.full_like(part, float(wish))
        whole = loss.double() / mesh.size(TENSOR)
        return torch.stack([whole, gradients.squared_norm(mesh.device), part, wishes])

    def _update(self, gradients: Held, norm: torch.Tensor, raised: float, rate: float) -> None:
        if self.clip_norm is not None:
            gradients.scale((self.clip_norm / (norm + CLIP_EPSILON)).clamp(max=1.0) / raised)
        elif raised != 1.0:
            gradients.scale(torch.ones_like(norm) / raised)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * rate
        self.optimizer.step()

    def _outcome(self, numbers: list[torch.Tensor], *, is_skipped: bool) -> Outcome:
        """Read back once, when all work of the step is queued."""
        loss, norm, targets, part, wishes = torch.stack(numbers).tolist()
        return Outcome(
            loss=loss,
            gradient_norm=norm,
            targets=int(targets),
            is_skipped=is_skipped,
            is_wished=wishes > 0,
            parts=None if self.parts is None else self.parts.parts,
            part_squared_norm=None if self.parts is None else part,
        )

    def _watch_first(self) -> None:
        """On one rank the first micro-batch's gradient is a part; elsewhere parts are seen on their way."""
        if self.parts is not None and self.parts.measured == 1:
            for part in held(self.parameters, self.parallel.mesh).parts:
                self.parts.add(part)


class Told:
    """What ranks tell each other of a step, in one message that travels while weights change, if it can."""

    def __init__(self, numbers: torch.Tensor, mesh: Mesh) -> None:
        self._own_squared_norm = numbers[1] * mesh.size(*mesh.team)
        self._totals = numbers
        self._work = dist.all_reduce(numbers, group=mesh.group(*mesh.team), async_op=True)

    @cached_property
    def totals(self) -> torch.Tensor:
        """Sums over ranks; waits for them."""
        self._work.wait()
        return self._totals

    def norm(self, *, is_whole: bool) -> torch.Tensor:
        """Norm of the gradient: a rank that holds all of it knows it at once."""
        return (self._own_squared_norm if is_whole else self.totals[1]).sqrt()


class Count:
    """Targets of all ranks, added up while a forward pass runs; one where there is none."""

    def __init__(self, parallel: Parallel, micro_batches: Sequence[Batch]) -> None:
        self._count = own_targets(micro_batches)
        group = parallel.mesh.group(*parallel.mesh.together)
        self._work = dist.all_reduce(self._count, group=group, async_op=True)

    @cached_property
    def targets(self) -> torch.Tensor:
        """The number, at least one, so that nothing is divided by zero; waits for it."""
        self._work.wait()
        return self._count.clamp(min=1)


def own_targets(micro_batches: Sequence[Batch]) -> torch.Tensor:
    """Targets of this rank."""
    return torch.stack([target_count(each.targets) for each in micro_batches]).sum()


def evaluate(parallel: Parallel, batch: Batch) -> float:
    """Mean loss of samples of all ranks without learning from them."""
    mesh = parallel.mesh
    micro_batches = split(local_part(batch, mesh), parallel.plan.micro_batches)
    with torch.no_grad(), autocast(parallel):
        if parallel.pipeline is not None:
            losses = parallel.pipeline.evaluate(micro_batches)
        else:
            losses = [
                loss_sum(answer(parallel.called[0], each, parallel.parts), each.targets)
                for each in micro_batches
            ]
    reshard(parallel.chunks)
    loss = torch.zeros((), dtype=torch.float64, device=mesh.device) + sum(losses)
    # each target is counted by all tensor ranks and stages, each loss by all tensor ranks of the last stage
    totals = torch.stack([loss * mesh.size(PIPELINE), own_targets(micro_batches).double()])
    dist.all_reduce(totals, group=mesh.group(*mesh.team))
    return (totals[0] / totals[1].clamp(min=1)).item()


def reshard(chunks: Sequence[nn.Module]) -> None:
    """Let go of gathered weights: after an evaluation no backward does, and checkpoints know shards alone."""
    for chunk in chunks:
        for module in chunk.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
