"""Forward and backward of a step's micro-batches, with as little synchronisation as the layout allows.

DDP and the replicas of HSDP reduce gradients once, after the last micro-batch. Sharded gradients are
reduce-scattered after each, so that no rank holds whole ones. Weights that are not resharded after forward
stay gathered until the last backward.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from escala.errors import InvalidInput
from escala.model.plan import Plan
from escala.parallel.batch import Batch
from escala.parallel.formats import AUTOCAST
from escala.parallel.loss import answer, loss_sum
from escala.parallel.parallelize import Parallel


def split(batch: Batch, micro_batches: int) -> tuple[Batch, ...]:
    """A rank's samples as micro-batches of the same size, in order."""
    rows, rest = divmod(len(batch), micro_batches)
    if rest or not rows:
        raise InvalidInput(
            f"{len(batch)} samples cannot be split into {micro_batches} micro-batches of one size; "
            "a rank's samples of a step are micro_batch x micro_batches of the plan"
        )
    return tuple(batch.rows(place * rows, rows) for place in range(micro_batches))


def learn(
    parallel: Parallel,
    micro_batches: Sequence[Batch],
    scale: Callable[[], torch.Tensor],
    after_first: Callable[[], None] = lambda: None,
) -> torch.Tensor:
    """Add the gradients of all micro-batches; loss sum * scale of this rank, 0 where it is not computed.

    The scale is asked for after a forward pass, which hides how long it takes to be known.
    """
    total = torch.zeros((), device=parallel.mesh.device)
    with autocast(parallel):
        if parallel.pipeline is not None:
            return total + sum(parallel.pipeline.run(micro_batches, scale()))
        for place, batch in enumerate(micro_batches):
            with synchronised(parallel.called[0], parallel.plan, place == len(micro_batches) - 1):
                loss = loss_sum(answer(parallel.called[0], batch, parallel.parts), batch.targets)
                loss = loss * scale()
                loss.backward()
            total += loss.detach()
            if place == 0:
                after_first()
    return total


def autocast(parallel: Parallel) -> AbstractContextManager[object]:
    """16-bit products of fp32 weights, op by op; FSDP casts weights itself when it gathers them."""
    kind = AUTOCAST.get(parallel.plan.precision)
    if kind is None or any(isinstance(each, FSDPModule) for each in parallel.chunks):
        return nullcontext()
    return torch.autocast(parallel.mesh.device.type, dtype=kind)


def synchronised(called: nn.Module, plan: Plan, is_last: bool) -> AbstractContextManager[object]:
    """What the last micro-batch of a step does for all of them."""
    if isinstance(called, FSDPModule):
        called.set_is_last_backward(is_last)
        called.set_requires_all_reduce(is_last)
        called.set_reshard_after_backward(is_last or plan.reshard)
    elif isinstance(called, DistributedDataParallel) and not is_last:
        return called.no_sync()
    return nullcontext()
