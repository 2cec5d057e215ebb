"""The loss of logits whose vocabulary is divided over ranks: no rank ever holds a token's logits whole."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from escala.parallel.batch import IGNORED
from escala.parallel.layouts import Stream
from escala.parallel.tensor import rows


def divided_loss_sum(logits: DTensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in fp32, log(sum of exp) - logit of the target, added up over targets not IGNORED.

    Logits (..., vocabulary) are divided along the vocabulary; targets (...) are the same on all its ranks, as
    is the answer.
    """
    stream = Stream(mesh=logits.device_mesh, splits_tokens=False)
    first, count = rows(logits.shape[-1], stream)
    assert logits.to_local().shape[-1] == count, (logits.placements, count)
    loss: torch.Tensor = _DividedLoss.apply(logits.to_local(), targets - first, stream.mesh.get_group())
    return torch.where(targets == IGNORED, 0.0, loss).sum()


class _DividedLoss(torch.autograd.Function):
    """Loss of each token from a rank's logits; one table of fp32 in their shape is kept for backward."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, places: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        is_here = (places >= 0) & (places < own.shape[-1])
        places = places.masked_fill(~is_here, 0)[..., None]
        greatest = own.float().amax(-1, keepdim=True)  # of all ranks, so that no exponential overflows
        dist.all_reduce(greatest, dist.ReduceOp.MAX, group=group)
        shifted = own.float() - greatest
        picked = shifted.gather(-1, places)[..., 0] * is_here
        shares = shifted.exp_()
        sums = torch.stack([shares.sum(-1), picked])
        dist.all_reduce(sums, group=group)
        ctx.save_for_backward(shares.div_(sums[0, ..., None]), places, is_here)
        ctx.dtype = own.dtype
        return sums[0].log() - sums[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        shares, places, is_here = ctx.saved_tensors
        found = shares * gradient[..., None]
        found.scatter_add_(-1, places, -(gradient * is_here)[..., None])
        return found.to(ctx.dtype), None, None
