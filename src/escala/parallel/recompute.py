"""Recompute of blocks in backward: activations thrown away after forward. Keeps the names of all modules."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from escala.model.plan import Plan, Recompute
from escala.parallel.parts import Parts, blocks_of

KEPT: Final = (
    "aten::mm",
    "aten::addmm",
    "aten::_grouped_mm",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_cudnn_attention",
    "_c10d_functional::reduce_scatter_tensor",
    "_c10d_functional::all_to_all_single",
)
"""What selective recompute keeps: products, attention and messages; the rest is cheap to compute again.

As in torchtitan's selective recompute of operators, with every product kept and not every second one.
"""


def recompute_blocks(chunks: Sequence[nn.Module], parts: Parts, plan: Plan) -> None:
    """Recompute all blocks of this rank, or the first of them; nothing where the plan asks for none."""
    if plan.recompute is Recompute.NONE:
        return
    blocks = [block for chunk in chunks for block in blocks_of(chunk, parts)]
    some = plan.recompute_layers if plan.recompute is Recompute.FIRST_LAYERS else len(blocks)
    for block in blocks[:some]:
        block.forward = _recomputed(block.forward, is_selective=plan.recompute is Recompute.SELECTIVE)


def _recomputed(forward: Callable[..., Any], *, is_selective: bool) -> Callable[..., Any]:
    if not is_selective:
        return partial(checkpoint, forward, use_reentrant=False)
    return partial(checkpoint, forward, use_reentrant=False, context_fn=_kept)


def _kept() -> Any:
    return create_selective_checkpoint_contexts(_policy)


def _policy(context: Any, operator: torch._ops.OpOverload, *given: Any, **named: Any) -> CheckpointPolicy:
    is_kept = operator.name().partition(".")[0] in KEPT
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE
