"""Squared norms of the gradients of parts of a step, before they are added: what a noise scale is made of.

DDP: the gradient of each rank, seen in its buckets before they are reduced. FSDP: of each rank and
micro-batch, seen before it is reduce-scattered. One rank: of the first of several micro-batches. Where a rank
holds part of a sample's gradient only (tp, pp, cp, ep), or replicas train alone, there is no such thing.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.nn.parallel import DistributedDataParallel

from escala.parallel.mesh import SHARD
from escala.parallel.parallelize import Parallel


@dataclass(slots=True, kw_only=True)
class PartNorms:
    """Sum of squared norms on this rank in this step, and into how many parts the whole step is cut.

    `measured` parts are seen in a step, by all ranks together. `factor` is what a part's gradient is
    multiplied with to be a mean over its own targets, if all parts have as many.
    """

    parts: int
    measured: int
    factor: float
    total: torch.Tensor

    def add(self, gradient: torch.Tensor) -> None:
        """Count a piece of a part's gradient."""
        self.total += gradient.float().square().sum().double()

    def taken(self) -> torch.Tensor:
        """This rank's share of the mean squared norm of a part; begins anew."""
        found = self.total * self.factor**2 / self.measured
        self.total.zero_()
        return found


def part_norms(parallel: Parallel) -> PartNorms | None:
    """Watch the gradients of parts; None where they cannot be seen."""
    plan, mesh, called = parallel.plan, parallel.mesh, parallel.called[0]
    if plan.tp * plan.pp * plan.cp * plan.ep > 1 or plan.local_steps > 1:
        return None
    total = torch.zeros((), dtype=torch.float64, device=mesh.device)
    parts = plan.dp * plan.micro_batches
    if isinstance(called, DistributedDataParallel):
        norms = PartNorms(parts=plan.dp, measured=plan.dp, factor=1.0, total=total)
        return None if called._comm_hooks else _seen_by_ddp(called, norms, mesh.group(*mesh.together))
    if isinstance(called, FSDPModule):
        norms = PartNorms(parts=parts, measured=parts, factor=plan.micro_batches, total=total)
        return _seen_by_fsdp(called, norms) if mesh.size(SHARD) > 1 else None
    norms = PartNorms(parts=parts, measured=1, factor=plan.micro_batches, total=total)
    return norms if parts > 1 else None


def _seen_by_ddp(called: DistributedDataParallel, norms: PartNorms, group: dist.ProcessGroup) -> PartNorms:
    called.register_comm_hook((norms, group), _reduce)
    return norms


def _reduce(
    state: tuple[PartNorms, dist.ProcessGroup], bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    norms, group = state
    norms.add(bucket.buffer())
    return allreduce_hook(group, bucket)


def _seen_by_fsdp(called: FSDPModule, norms: PartNorms) -> PartNorms:
    for module in called.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_reduce_scatter(_ReduceScatter(norms))
    return norms


class _ReduceScatter(DefaultReduceScatter):
    """FSDP's own, with a look at what goes in."""

    def __init__(self, norms: PartNorms) -> None:
        self.norms = norms

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, **given: Any) -> Any:
        """Measure, then reduce."""
        self.norms.add(input_tensor)
        return super().__call__(output_tensor, input_tensor, **given)
