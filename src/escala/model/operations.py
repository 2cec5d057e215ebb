"""Seconds of single operations on a processor that a bench timed: eager, one after the other, none hidden.

A processor works on an operation when it is launched, so launches add to the work, they hide behind nothing.
Attention and convolutions were timed in fp32; what is added up stands beside the formulas for GPUs.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala.model.columns import F64, Bool

LAYER_LAUNCHES: Final = 35.0
"""Operations of a transformer layer forward: those that `convolution_dispatch_ratio` counts against."""
# Counted from transformers 5.24, LlamaRMSNorm (square, mean, product, weight), in arrays read and written:
# forward 7 in place of 2, backward 17 in place of 3.
RMS_NORM_PASSES: Final = 19.0
KEY_BLOCK: Final = 512.0
"""Keys that PyTorch's kernel for processors takes at once. Source: FlashAttentionKernel.cpp (kvSplitSize)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What was timed: seconds of a launch and of the update of a parameter, bytes and FLOP a second.

    `pass_bytes_per_s` is that of norms, activations and additions in a chain, forward and backward. Attention
    counts every query against every key, and its backward rate 2.5 times the forward work. Convolutions have
    seconds of a FLOP and of a byte; backward they count twice the FLOP and bytes of forward. `pooled_s` is
    one output of a max-pool over 3 x 3, forward and backward. `distributed_launch_s` is that of a tensor
    split over ranks, None where one rank was timed.
    """

    launch_s: float
    update_s: float
    pass_bytes_per_s: float
    attention_flop_per_s: float
    attention_backward_flop_per_s: float
    convolution_s_per_flop: float
    convolution_s_per_byte: float
    convolution_backward_s_per_flop: float
    convolution_backward_s_per_byte: float
    pooled_s: float
    distributed_launch_s: float | None = None


def with_twice_the_arithmetic(known: Operations | None) -> Operations | None:
    """The same processor with twice the FLOP a second."""
    if known is None:
        return None
    return replace(
        known,
        attention_flop_per_s=2.0 * known.attention_flop_per_s,
        attention_backward_flop_per_s=2.0 * known.attention_backward_flop_per_s,
        convolution_s_per_flop=known.convolution_s_per_flop / 2.0,
        convolution_backward_s_per_flop=known.convolution_backward_s_per_flop / 2.0,
        pooled_s=known.pooled_s / 2.0,
    )


def with_twice_the_memory_speed(known: Operations | None) -> Operations | None:
    """The same processor with twice the bytes a second, of which updates are made."""
    if known is None:
        return None
    return replace(
        known,
        pass_bytes_per_s=2.0 * known.pass_bytes_per_s,
        update_s=known.update_s / 2.0,
        convolution_s_per_byte=known.convolution_s_per_byte / 2.0,
        convolution_backward_s_per_byte=known.convolution_backward_s_per_byte / 2.0,
    )


def attention_s(known: Operations, queries: F64, keys: F64 | float, width: F64 | float) -> tuple[F64, F64]:
    """Attention core, forward and backward: 2 * queries * keys * (query + value width) / speed; 2.5 times.

    `queries` counts those of all heads, `keys` those that the kernel works on, see `worked_keys`.
    """
    flop = 2.0 * queries * keys * width
    return flop / known.attention_flop_per_s, 2.5 * flop / known.attention_backward_flop_per_s


def worked_keys(all_keys: F64 | float, *, is_causal: Bool | bool) -> F64:
    """Keys that the kernel works on for a query: all, or when causal (keys + block) / 2, at most all."""
    return np.where(is_causal, np.minimum(all_keys, (all_keys + KEY_BLOCK) / 2.0), all_keys)


def convolution_sides_s(known: Operations, flop: F64, moved_bytes: F64) -> tuple[F64, F64]:
    """One convolution, forward and backward: FLOP * seconds + bytes * seconds + launch; twice as many."""
    forward_s = flop * known.convolution_s_per_flop + moved_bytes * known.convolution_s_per_byte
    backward_s = flop * known.convolution_backward_s_per_flop
    backward_s = backward_s + moved_bytes * known.convolution_backward_s_per_byte
    return forward_s + known.launch_s, 2.0 * (backward_s + known.launch_s)
