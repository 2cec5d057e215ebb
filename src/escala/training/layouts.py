"""One module under several plans beside one process: losses, norms, weights. Needs torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

from escala.errors import InvalidInput
from escala.model.plan import Plan
from escala.model.workload import OptimizerKind
from escala.parallel.batch import IGNORED, Batch
from escala.parallel.mesh import DATA, mesh_of
from escala.parallel.optimizers import optimizer_of
from escala.parallel.parallelize import Parallel, parallelize
from escala.parallel.pieces import whole
from escala.parallel.step import Step
from escala.training.data.samples import Source
from escala.training.data.tensors import batch_of
from escala.training.job import Job
from escala.training.layout_list import DIFFERS, REFUSED, SAME, TOLERANCE, Difference, Layout, Verdict
from escala.training.modules import built

RATE, MOMENTUM, CLIP = 0.1, 0.9, 1.0
"""SGD, which divides by no small gradient, so that rounding stays as small as it is."""
Told = list[tuple[float, float]]
"""Loss and norm of each step."""
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is trained: a job's module and samples, so many steps on a device."""

    job: Job
    source: Source
    steps: int
    device: torch.device

    def module(self) -> tuple[nn.Module, tuple[str, ...] | None]:
        """The module with the weights of the seed, without dropout: layouts draw other random numbers."""
        choices = self.job.choices
        module, blocks = built(choices.module, self.job.problem.workload.network, choices.seed)
        _without_dropout(module)
        return module.to(self.device), blocks

    def batch(self, step: int, rows: int) -> Batch:
        """The whole batch of a step."""
        return batch_of(self.source.batch(step * rows, rows)).to(self.device)


def compare(trial: Trial, layouts: Sequence[Layout]) -> Iterator[Verdict]:
    """The verdict of each layout; all ranks call and hear the same."""
    for each in layouts:
        yield _verdict(trial, each)


def _verdict(trial: Trial, layout: Layout) -> Verdict:
    found = _outcome(trial, layout, layout.plan)
    if found.verdict != DIFFERS:
        return found
    tried: list[tuple[str, str]] = []
    for name, plan in layout.passes:
        is_last = (name, plan) == layout.passes[-1]
        verdict = DIFFERS if is_last else _outcome(trial, layout, plan).verdict
        tried.append((name, verdict))
        if verdict == DIFFERS:
            break
    return replace(found, first_pass=tried[-1][0], tried=tuple(tried))


def _outcome(trial: Trial, layout: Layout, plan: Plan) -> Verdict:
    """One plan beside one process; the first rank compares and tells the others."""
    try:
        told, weights = _parallel(trial, plan, layout.rows)
    except InvalidInput as error:
        return Verdict(name=layout.name, devices=plan.devices, verdict=REFUSED, reason=str(error))
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.gather_object((told, weights), everyone if dist.get_rank() == 0 else None)
    heard: list[Any] = [None]
    if dist.get_rank() == 0:
        heard = [difference(everyone, *_alone(trial, plan, layout.rows))]
    dist.broadcast_object_list(heard)
    far: Difference = heard[0]
    verdict = SAME if far.is_within(TOLERANCE) else DIFFERS
    return Verdict(name=layout.name, devices=plan.devices, verdict=verdict, difference=far)


def difference(
    everyone: Sequence[tuple[Told, Weights]], told: Told, weights: Mapping[str, torch.Tensor]
) -> Difference:
    """How far ranks are from one process: losses, norms in terms of the norm, weights at the end."""
    names = set().union(*(set(held) for _, held in everyone))
    assert names == set(weights), f"names differ: {sorted(names ^ set(weights))[:8]}"
    pairs = [pair for ours, _ in everyone for pair in zip(ours, told, strict=True)]
    held = [(name, each) for _, parts in everyone for name, each in parts.items()]
    return Difference(
        loss=max(far(ours, loss) for (ours, _), (loss, _) in pairs),
        norm=max(far(ours / norm, 1.0) for (_, ours), (_, norm) in pairs),
        weights=max(
            far((each.float() - weights[name].float()).abs().max().item(), 0.0) for name, each in held
        ),
    )


def far(ours: float, alone: float) -> float:
    """|ours - alone|; infinite where ours is no number."""
    return abs(ours - alone) if ours == ours else float("inf")


def held_weights(parallel: Parallel) -> Weights:
    """The weights that a rank holds, each whole; one that two parts share by both names."""
    held = {
        name: each.detach()
        for chunk in parallel.chunks
        for name, each in chunk.named_parameters(remove_duplicate=False)
    }
    return {name: whole(each) if isinstance(each, DTensor) else each for name, each in held.items()}


def _parallel(trial: Trial, plan: Plan, rows: int) -> tuple[Told, Weights]:
    module, blocks = trial.module()
    mesh = mesh_of(plan, trial.device)
    parallel = parallelize(module, plan, mesh, blocks=blocks)
    optimizer = optimizer_of(parallel, OptimizerKind.SGD, rate=RATE, momentum=MOMENTUM)
    step, own = Step(parallel, optimizer, clip_norm=CLIP), rows // mesh.size(*DATA)
    batches = (trial.batch(place, rows).rows(mesh.place(*DATA) * own, own) for place in range(trial.steps))
    outcomes = [step(each) for each in batches]
    weights = {name: each.cpu() for name, each in held_weights(parallel).items()}
    return [(each.loss, each.gradient_norm) for each in outcomes], weights


def _alone(trial: Trial, plan: Plan, rows: int) -> tuple[Told, Weights]:
    """A bare loop over the whole batch in one process; a batch norm has to see the same samples at a time."""
    module, _ = trial.module()
    parts = plan.dp * plan.micro_batches if _has_batch_norm(module) else 1
    update = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    told = []
    for place in range(trial.steps):
        loss = _learn(module, trial.batch(place, rows), rows // parts)
        norm = nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        told.append((loss, norm.item()))
        update.step()
        update.zero_grad()
    return told, {name: each.detach().cpu() for name, each in module.named_parameters(remove_duplicate=False)}


def _learn(module: Callable[..., Any], batch: Batch, rows: int) -> float:
    """Backward of the mean loss over all targets, some rows at a time."""
    targets, total = (batch.targets != IGNORED).sum(), 0.0
    for first in range(0, len(batch), rows):
        part = batch.rows(first, rows)
        answer = module(part.inputs)
        logits = getattr(answer, "logits", answer)
        flat = logits.flatten(0, -2) if logits.ndim > 2 else logits
        summed = cross_entropy(flat.float(), part.targets.flatten(), ignore_index=IGNORED, reduction="sum")
        mean = summed / targets
        mean.backward()
        total += mean.item()
    return total


def _has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in module.modules())


def _without_dropout(module: nn.Module) -> None:
    for each in module.modules():
        for name, value in list(vars(each).items()):
            is_share = isinstance(value, float) and not isinstance(value, bool)
            if is_share and ("drop" in name or (name == "p" and "Dropout" in type(each).__name__)):
                setattr(each, name, 0.0)
