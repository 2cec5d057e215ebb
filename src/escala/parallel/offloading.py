"""What blocks keep for backward, moved to host memory between forward and backward."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from escala.model.plan import Offload, Plan
from escala.parallel.parts import Parts, blocks_of

LEAST_BYTES: Final = 4096
"""Smaller tensors stay: a copy of them costs more than it frees."""


def offload_activations(chunks: Sequence[nn.Module], parts: Parts, plan: Plan) -> None:
    """Move what blocks save to host memory; nothing where the plan asks for none."""
    if plan.offload_activations is Offload.NONE:
        return
    for chunk in chunks:
        for block in blocks_of(chunk, parts):
            block.forward = _offloaded(block, block.forward)


def _offloaded(block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*given: Any, **named: Any) -> Any:
        weights = {each.untyped_storage()._cdata for each in block.parameters()}
        with saved_tensors_hooks(lambda tensor: _packed(tensor, weights), _unpacked):
            return forward(*given, **named)

    return run


def _packed(tensor: torch.Tensor, weights: set[int]) -> Any:
    """Its device and a copy in host memory; weights stay, for they exist anyway and sharding frees them."""
    is_small = tensor.numel() * tensor.element_size() < LEAST_BYTES
    if is_small or tensor.untyped_storage()._cdata in weights:
        return tensor
    on_host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    return tensor.device, on_host.copy_(tensor, non_blocking=True)


def _unpacked(packed: Any) -> torch.Tensor:
    if isinstance(packed, torch.Tensor):
        return packed
    device, on_host = packed
    return on_host.to(device, non_blocking=True)
