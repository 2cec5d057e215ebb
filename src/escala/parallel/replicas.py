"""Gradients averaged over ranks that hold the same weights, after the last micro-batch, in few messages."""

from collections.abc import Iterable, Iterator
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

BUCKET_BYTES: Final = 25 * 2**20
"""Of one message, as in DistributedDataParallel."""


def average(parameters: Iterable[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Replace gradients by their mean over a group; ranks of the group hold the same parameters."""
    ranks = dist.get_world_size(group)
    for bucket in _buckets([local_gradient(each) for each in parameters if each.grad is not None]):
        flat = torch.cat([each.flatten() for each in bucket]) / ranks
        dist.all_reduce(flat, group=group)
        for gradient, mean in zip(bucket, flat.split([each.numel() for each in bucket]), strict=True):
            gradient.copy_(mean.view_as(gradient))


def local_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """This rank's part of a gradient; what is written to it is written to the gradient."""
    assert parameter.grad is not None
    return parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad


def _buckets(gradients: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Gradients of one format in order, up to a bucket's size together."""
    for kind in dict.fromkeys(each.dtype for each in gradients):
        bucket: list[torch.Tensor] = []
        for gradient in (each for each in gradients if each.dtype == kind):
            if bucket and sum(each.nbytes for each in bucket) + gradient.nbytes > BUCKET_BYTES:
                yield bucket
                bucket = []
            bucket.append(gradient)
        yield bucket
