"""Tensors that know how they are split over ranks (DTensor): how many operations, what these cost to launch.

Python decides for each of them what every rank does, which takes many times what a plain operation takes.
Only where a processor was timed: on a GPU the engine records say what launches cost.
"""

from typing import Final

import numpy as np

from escala.model.columns import F64
from escala.model.network import Attention, Block, FeedForward, Linear, Network
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.shards import linear_maps
from escala.model.stages import kinds

# Counted in traces of torch 2.13, forward and backward, conversions from and to plain tensors included; a
# third of them in forward. RMSNorm is made of several operations, LayerNorm of one.
MAP_LAUNCHES: Final = 20.0
RMS_NORM_LAUNCHES, LAYER_NORM_LAUNCHES = 27.0, 6.0
EMBEDDING_LAUNCHES, LOSS_LAUNCHES = 9.0, 10.0
UPDATE_LAUNCHES: Final = (1.0, 3.0, 8.0)
"""Of one parameter by moments of the optimizer: SGD, SGD with momentum, AdamW. Source: as above."""
GRADIENT_USES: Final = (1, 1, 3)
"""How often an optimizer of so many moments reads a gradient, which is summed over ranks each time.

Source: traces of torch 2.13; AdamW reads it for the first moment, and for the second twice.
"""


def launch_s(problem: Problem) -> float:
    """Seconds to launch one operation on a distributed tensor; 0 where there are none, or none was timed."""
    known = problem.accelerator.operations
    if known is None or not problem.messages.has_distributed_tensors:
        return 0.0
    return known.distributed_launch_s or 0.0


def layer_launches_s(problem: Problem, plans: Plans, block: Block) -> F64:
    """Launches of a layer split by TP, both ways: 20 a linear map, with SP 27 an RMSNorm or 6 a LayerNorm.

    Source: traces of torch 2.13.
    """
    launches = MAP_LAUNCHES * maps(block) + norm_launches(block.norms, block.norm_weights) * (plans.sp == 1)
    return np.where(plans.tp > 1, launches * launch_s(problem), 0.0)


def end_launches_s(problem: Problem, plans: Plans, has_embedding: F64, has_head: F64) -> F64:
    """Launches of the ends under TP: 9 of the embedding, 20 of the head, 10 of the loss, with SP a norm.

    Source: traces of torch 2.13.
    """
    last = norm_launches(1, problem.workload.network.main.final_norm_weights) * (plans.sp == 1)
    launches = EMBEDDING_LAUNCHES * has_embedding + (MAP_LAUNCHES + LOSS_LAUNCHES + last) * has_head
    return np.where(plans.tp > 1, launches * launch_s(problem) * plans.micro_batches, 0.0)


def norm_launches(norms: int, norm_weights: int) -> float:
    """Launches of norms of the hidden stream under SP; one with one vector of weights is an RMSNorm."""
    return norms * (RMS_NORM_LAUNCHES if norm_weights == 1 else LAYER_NORM_LAUNCHES)


def update_launches_s(problem: Problem, plans: Plans, matrices: F64, norms: F64) -> F64:
    """Launches of the optimizer: 8 a parameter under AdamW, 3 with one moment, 1 with none.

    Distributed are all parameters where they are sharded (FSDP2), matrices under TP, with SP norms as well.
    Source: traces of torch 2.13.
    """
    is_sharded, is_split = (plans.zero >= 3) & (plans.shard > 1), plans.tp > 1
    parameters = np.where(is_sharded | is_split, matrices, 0.0)
    parameters = parameters + np.where(is_sharded | (is_split & (plans.sp == 1)), norms, 0.0)
    return parameters * UPDATE_LAUNCHES[problem.workload.optimizer.moments] * launch_s(problem)


def norm_sums(problem: Problem, plans: Plans) -> F64:
    """How often a step sums the gradient of a norm over tensor ranks under SP, which split its tokens.

    As often as the optimizer reads it; once a micro-batch where FSDP2 reduces it.
    Source: traces of torch 2.13.
    """
    is_sharded = (plans.zero >= 3) & (plans.shard > 1)
    uses = GRADIENT_USES[problem.workload.optimizer.moments]
    sums = np.where(is_sharded, plans.micro_batches, uses).astype(np.float64)
    is_counted = problem.messages.has_distributed_tensors and not problem.workload.is_frozen
    return np.where((plans.sp == 1) & (plans.tp > 1), sums, 0.0) * is_counted


def matrices(network: Network, layer_counts: F64) -> F64:
    """Linear maps in the layers of a rank. Shapes: (n, kinds) of layers, (n,)."""
    each = [float(maps(block)) for _, block in kinds(network)]
    return np.asarray(layer_counts @ np.array(each), np.float64)


def norms(network: Network, layer_counts: F64) -> F64:
    """Vectors of weights of norms in the layers of a rank. Shapes: (n, kinds) of layers, (n,)."""
    each = [float(block.norms * block.norm_weights) for _, block in kinds(network)]
    return np.asarray(layer_counts @ np.array(each), np.float64)


def maps(block: Block) -> int:
    """Linear maps of a layer beside those of experts, which TP leaves whole."""
    plain = (part for part in block.parts if isinstance(part, (Attention, FeedForward, Linear)))
    return sum(len(linear_maps(part, 0)) for part in plain)
