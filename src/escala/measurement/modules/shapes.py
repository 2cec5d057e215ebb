"""The matrix products and attention kernels among PyTorch's operations: their sizes, from shapes alone."""

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch

from escala.measurement.tracing.private import ATTENTION, GROUPED, ROW, ROWS, ROWS_ADDED

aten = torch.ops.aten
CONVOLUTIONS: Final = (aten.convolution.default, aten._convolution.default)
FLASH: Final = (
    ATTENTION,
    *(
        getattr(aten, name).default
        for name in ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention")
    ),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """One operation: `count` products of (rows x inner) by (inner x outer), or an attention kernel.

    Experts share the rows of their product. Of attention rows and outer are queries and keys, inner and
    `value_dim` the widths of a head, count heads * samples.
    """

    rows: int
    inner: int
    outer: int
    count: int = 1
    is_grouped: bool = False
    channels: int = 0
    groups: int = 1
    value_dim: int = 0
    is_causal: bool = False


def sizes_of(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Sizes | None:
    """The sizes of a product or of attention; None for every other operation."""
    if function in CONVOLUTIONS:
        return _convolution(arguments)
    if function in FLASH:
        return _attention(arguments, named)
    if function is GROUPED:
        left, right = arguments[0].shape, arguments[1].shape
        return Sizes(rows=left[-2], inner=left[-1], outer=right[-1], count=right[0], is_grouped=True)
    if function in (aten.mm.default, aten.bmm.default):
        return _product(arguments[0], arguments[1])
    if function in (aten.addmm.default, aten.baddbmm.default):
        return _product(arguments[1], arguments[2])
    if function in (ROWS, ROWS_ADDED):
        rows, inner = arguments[function is ROWS_ADDED].shape
        return Sizes(rows=rows, inner=inner, outer=1)
    if function is ROW:
        return Sizes(rows=1, inner=arguments[0].numel(), outer=1)
    return None


def _product(left: torch.Tensor, right: torch.Tensor) -> Sizes:
    count = left.shape[0] if left.dim() == 3 else 1
    return Sizes(rows=left.shape[-2], inner=left.shape[-1], outer=right.shape[-1], count=count)


def _attention(arguments: tuple[Any, ...], named: dict[str, Any]) -> Sizes:
    query, key, value = arguments[:3]
    is_causal = bool(named.get("is_causal", any(each is True for each in arguments[3:])))
    return Sizes(
        rows=query.shape[-2],
        inner=query.shape[-1],
        outer=key.shape[-2],
        count=prod(query.shape[:-2]),
        value_dim=value.shape[-1],
        is_causal=is_causal,
    )


def _convolution(arguments: tuple[Any, ...]) -> Sizes:
    """Rows are outputs of all samples; a transposed one has a row for each input instead."""
    given, weight, stride, padding, dilation, is_transposed, groups = (
        *arguments[:2],
        *arguments[3:7],
        arguments[8],
    )
    kernel = prod(weight.shape[2:])
    if is_transposed:
        rows = given.shape[0] * prod(given.shape[2:])
        outputs = weight.shape[1] * groups
        # a row of the inputs is spread over the kernel of every output channel
        return Sizes(
            rows=rows,
            inner=weight.shape[0] // groups,
            outer=outputs * kernel,
            channels=weight.shape[0],
            groups=groups,
        )
    spread = zip(given.shape[2:], weight.shape[2:], stride, padding, dilation, strict=False)
    pixels = prod(
        (size + 2 * pad - dil * (side - 1) - 1) // step + 1 for size, side, step, pad, dil in spread
    )
    return Sizes(
        rows=given.shape[0] * pixels,
        inner=weight.shape[1] * kernel,
        outer=weight.shape[0],
        channels=given.shape[1],
        groups=groups,
    )
