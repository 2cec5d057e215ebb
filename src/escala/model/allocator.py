"""What the caching allocator holds and the driver shows for a peak in use. Knows no phases and no engines.

The allocator keeps freed blocks; what does not fit into one of them needs a new one.
"""

from dataclasses import dataclass

import numpy as np

from escala.model.columns import F64, Bool
from escala.model.plan import Plans
from escala.model.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """Bytes that the allocator has reserved, and those that nvidia-smi shows. Shapes: (n,)."""

    reserved_bytes: F64
    device_bytes: F64


def held_bytes(problem: Problem, groups_bytes: F64, slacked_bytes: F64, stranded_bytes: F64) -> Held:
    """Peak with slack + stranded blocks, never above the device: near capacity cached blocks are given back.

    The driver shows the context, workspaces and buffers of collectives as well. Source: the allocator's
    documented rules; engine records.
    """
    outside = problem.engine.memory.context_bytes + groups_bytes
    room = np.maximum(slacked_bytes, problem.accelerator.memory_bytes - outside)
    reserved = np.minimum(slacked_bytes + stranded_bytes, room)
    return Held(reserved_bytes=reserved, device_bytes=reserved + outside)


def group_bytes(problem: Problem, plans: Plans) -> F64:
    """Buffers of collectives outside the allocator: communicator bytes * kinds of groups in use.

    Kinds are dp, tp, pp, cp and ep. Source: engine record.
    """
    in_use = np.zeros(len(plans))
    for degree in (plans.dp, plans.tp, plans.pp, plans.cp, plans.ep):
        in_use += degree > 1
    return problem.engine.memory.communicator_bytes * in_use


def stranded_loss_bytes(problem: Problem, plans: Plans, logits_bytes: F64, at_loss: Bool) -> F64:
    """Blocks of the loss that cannot be used again: 2 bytes a logit, or what varying lengths leave.

    The 16-bit logits are too small for their fp32 copies (14 bytes reserved for 12 allocated); paths of 16
    bytes and more keep them. Varying lengths: (ratio - 1) * logits of the longest.
    Source: simulation of the caching allocator's documented rules; engine records.
    """
    engine = problem.engine.memory
    if not problem.workload.lengths.is_packed:
        return np.asarray(logits_bytes * (engine.varied_length_ratio - 1.0), np.float64)
    drops = (plans.fused_loss == 0) & (plans.tp == 1) & (12.0 <= engine.loss_bytes < 16.0)
    return np.where(at_loss & drops, logits_bytes * 2.0 / max(engine.loss_bytes, 1.0), 0.0)


def stranded_step_bytes(problem: Problem, step_bytes: F64, at_step: Bool) -> F64:
    """Flat temporaries of the optimizer step, which no freed block can hold: in full beside another peak."""
    return np.where(at_step | (not problem.engine.memory.flat_step), 0.0, step_bytes)
