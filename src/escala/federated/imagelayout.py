"""Convolutions and max-pools of stacked clients with channels last, where processors are fast. Needs torch.

Under vmap the clients of a stack become groups of channels of one convolution, and more channels of one pool;
left to vmap alone they are laid out channels first, where both take about twice as long.
"""

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Dims = tuple[int | None, ...]


class ChannelsLast(TorchFunctionMode):
    """While it is entered, conv2d and max_pool2d have rules of their own for vmap."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Route the two; everything else is as it is."""
        given = kwargs or {}
        if func is torch.conv2d and len(args) == 7 and not given and not isinstance(args[4], str):
            return _Conv.apply(*args)
        if func is functional.max_pool2d and not given.get("return_indices"):
            return _Pool.apply(args[0], args[1:], {k: v for k, v in given.items() if k != "return_indices"})
        return func(*args, **given)


class _Conv(torch.autograd.Function):
    """conv2d; under vmap one convolution with a group for each client."""

    @staticmethod
    def forward(*given: Any) -> torch.Tensor:
        return torch.conv2d(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: Dims, *given: Any) -> tuple[torch.Tensor, int]:
        images, weight, bias, stride, padding, dilation, groups = given
        clients = info.batch_size
        flat = _merged(images, in_dims[0], clients)
        own = _first(weight, in_dims[1], clients).flatten(0, 1)
        added = None if bias is None else _first(bias, in_dims[2], clients).flatten(0, 1)
        made = torch.conv2d(flat, own, added, stride, padding, dilation, groups * clients)
        return made.unflatten(1, (clients, -1)), 1


class _Pool(torch.autograd.Function):
    """max_pool2d; under vmap channels of all clients are channels."""

    @staticmethod
    def forward(images: torch.Tensor, given: Any, named: Any) -> torch.Tensor:
        return functional.max_pool2d(images, *given, **named)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: Dims, *inputs: Any) -> tuple[torch.Tensor, int]:
        images, given, named = inputs
        flat = _merged(images, in_dims[0], info.batch_size)
        return functional.max_pool2d(flat, *given, **named).unflatten(1, (info.batch_size, -1)), 1


def _first(tensor: torch.Tensor, dim: int | None, clients: int) -> torch.Tensor:
    """With the client as first axis, also where all share it."""
    return tensor.expand(clients, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _merged(images: torch.Tensor, dim: int | None, clients: int) -> torch.Tensor:
    """Images of all clients as channels of one batch, channels last: (batch, clients * channels, h, w)."""
    flat = _first(images, dim, clients).movedim(0, 1).flatten(1, 2)
    return flat.contiguous(memory_format=torch.channels_last)
