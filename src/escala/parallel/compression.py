"""Gradients sent in fewer bytes between replicas of DDP: in 16 bit, or as matrices of low rank."""

from enum import StrEnum
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

RANK: Final = 4
"""Rank of PowerSGD's matrices; its authors use 1 to 4."""
WARM_UP_STEPS: Final = 10
"""Steps with whole gradients before PowerSGD begins; it needs at least two."""


class Compression(StrEnum):
    """What is sent instead of fp32 gradients."""

    NONE = "none"
    BF16 = "bf16"
    FP16 = "fp16"
    POWER_SGD = "powersgd"


def compress(called: DistributedDataParallel, compression: Compression, group: dist.ProcessGroup) -> None:
    """Let DDP send its gradients compressed."""
    if compression is Compression.POWER_SGD:
        state = PowerSGDState(group, matrix_approximation_rank=RANK, start_powerSGD_iter=WARM_UP_STEPS)
        called.register_comm_hook(state, powerSGD_hook)
    elif compression is not Compression.NONE:
        kind = torch.bfloat16 if compression is Compression.BF16 else torch.float16
        called.register_comm_hook((kind, group), _narrow)


def _narrow(
    state: tuple[torch.dtype, dist.ProcessGroup], bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """The mean of a bucket over ranks, sent in 16 bit; torch's own hook for bf16 runs on CUDA alone."""
    kind, group = state
    sent = bucket.buffer().to(kind).div_(group.size())
    found = dist.all_reduce(sent, group=group, async_op=True)
    assert found is not None
    return found.get_future().then(lambda future: bucket.buffer().copy_(future.value()[0]))
