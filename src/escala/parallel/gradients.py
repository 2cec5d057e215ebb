"""Gradients of all ranks seen as one vector: made whole, measured, scaled.

A gradient is a plain tensor (the same on every rank of a stage) or a DTensor (sharded or the same along the
axes of its own mesh). Each is counted once however many ranks hold it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from escala.parallel.mesh import PIPELINE, Mesh

DUPLICATE = "escala_duplicate"
"""Mark of a parameter that another stage holds too and counts: a tied embedding on the last stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Local parts of gradients, and how many ranks of the world hold each of them."""

    parts: tuple[torch.Tensor, ...]
    copies: tuple[float, ...]

    def squared_norm(self, device: torch.device) -> torch.Tensor:
        """This rank's share of the squared norm of the whole gradient, in fp64."""
        total = torch.zeros((), dtype=torch.float64, device=device)
        if not self.parts:
            return total
        norms = torch._foreach_norm(self.parts, dtype=torch.float32)
        for copies in set(self.copies):  # few: numbers that are sent to a device wait for its queue
            same = [each.to(device) for each, own in zip(norms, self.copies, strict=True) if own == copies]
            total += torch.stack(same).double().square().sum() / copies
        return total

    def is_whole(self, mesh: Mesh) -> bool:
        """True when every rank of the team holds all of the gradient, as under plain data parallelism."""
        return all(copies == mesh.size(*mesh.team) for copies in self.copies)

    def scale(self, factor: torch.Tensor) -> None:
        """Multiply in place."""
        by_device: dict[torch.device, list[torch.Tensor]] = {}
        for part in self.parts:
            by_device.setdefault(part.device, []).append(part)
        for device, parts in by_device.items():
            torch._foreach_mul_(parts, factor.to(device, dtype=torch.float32))


def held(parameters: Iterable[nn.Parameter], mesh: Mesh) -> Held:
    """Gradients of one rank; those that are partial over ranks are added up first."""
    with_gradient = [each for each in parameters if each.grad is not None]
    _complete(with_gradient)
    stage_ranks = mesh.size(*mesh.team) // mesh.size(PIPELINE)
    parts = tuple(_local(each.grad) for each in with_gradient)
    return Held(parts=parts, copies=tuple(_copies(each, stage_ranks) for each in with_gradient))


def _local(gradient: torch.Tensor | None) -> torch.Tensor:
    assert gradient is not None
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _copies(parameter: nn.Parameter, stage_ranks: int) -> float:
    """Ranks with the same part: those of the stage / different shards; no end of them for a duplicate."""
    if getattr(parameter, DUPLICATE, False):
        return float("inf")
    if not isinstance(parameter.grad, DTensor):
        return float(stage_ranks)
    mesh, placements = parameter.grad.device_mesh, parameter.grad.placements
    shards = prod(mesh.size(axis) for axis, each in enumerate(placements) if not each.is_replicate())
    return stage_ranks / shards


def _complete(parameters: Sequence[nn.Parameter]) -> None:
    """Add up gradients that are partial over ranks, as those of norms are under sequence parallelism.

    One message a mesh instead of one a parameter.
    """
    partial: dict[object, list[nn.Parameter]] = {}
    for each in parameters:
        if isinstance(each.grad, DTensor) and any(place.is_partial() for place in each.grad.placements):
            partial.setdefault((each.grad.device_mesh, each.grad.placements), []).append(each)
    for group in partial.values():
        _add_up(group)


def _add_up(parameters: list[nn.Parameter]) -> None:
    gradients = [each.grad for each in parameters if isinstance(each.grad, DTensor)]
    mesh, placements = gradients[0].device_mesh, gradients[0].placements
    flat = torch.cat([each.to_local().flatten() for each in gradients])
    for axis, placement in enumerate(placements):
        if placement.is_partial():
            assert placement.is_partial("sum"), placement
            dist.all_reduce(flat, group=mesh.get_group(axis))
    whole = [Replicate() if each.is_partial() else each for each in placements]
    totals = flat.split([each.to_local().numel() for each in gradients])
    for parameter, old, total in zip(parameters, gradients, totals, strict=True):
        local = total.view_as(old.to_local())
        parameter.grad = DTensor.from_local(
            local, mesh, whole, run_check=False, shape=old.shape, stride=old.stride()
        )
