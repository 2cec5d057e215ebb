"""Tensors that know how they are split over ranks (DTensor): how many operations, what these cost to launch.

Python decides for each of them what every rank does, which takes many times what a plain operation takes.
Only where a processor was timed: on a GPU the engine records say what launches cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import F64
from escala.model.engine import DistributedTensors
from escala.model.network import Attention, Block, FeedForward, Linear, Mixer, Network
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.shards import linear_maps
from escala.model.stages import kinds
from escala.model.traced import traced_part


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """How many operations on distributed tensors a step of TP launches, forward and backward.

    `layer`, `linear_map` and `norm_vector` (of weights of norms) in each layer, `rms_norm` and `layer_norm`
    more of each norm under SP; `embedding` and `head` at the ends with what follows the head; `update` of one
    parameter by moments of the optimizer: SGD, SGD with momentum, AdamW. `gradient_uses`: how often a step
    sums the gradient of a norm under SP, by the same moments; None is once a micro-batch. `loss_messages` are
    those of the loss of a divided vocabulary.
    """

    layer: float
    linear_map: float
    norm_vector: float
    rms_norm: float
    layer_norm: float
    embedding: float
    head: float
    update: tuple[float, float, float]
    gradient_uses: tuple[int, int, int] | None
    loss_messages: float


# Counted in traces of torch 2.13, conversions from and to plain tensors included; a third of them in forward.
# AdamW of one tensor after another reads a gradient for the first moment, and for the second twice.
COUNTED: Final[Mapping[DistributedTensors, Launches]] = {
    DistributedTensors.MODULES: Launches(
        layer=0.0,
        linear_map=20.0,
        norm_vector=0.0,
        rms_norm=27.0,
        layer_norm=6.0,
        embedding=9.0,
        head=30.0,
        update=(1.0, 3.0, 8.0),
        gradient_uses=(1, 1, 3),
        loss_messages=3.0,
    ),
    DistributedTensors.WEIGHTS: Launches(
        layer=19.0,
        linear_map=5.0,
        norm_vector=5.0,
        rms_norm=1.0,
        layer_norm=2.0,
        embedding=11.0,
        head=16.0,
        update=(1.0, 1.0, 1.0),
        gradient_uses=None,
        loss_messages=2.0,
    ),
}


def launches(problem: Problem) -> Launches | None:
    """What the engine launches on the backend of the problem; None where nothing is a distributed tensor."""
    return COUNTED.get(problem.messages.distributed_tensors)


def launch_s(problem: Problem) -> float:
    """Seconds to launch one operation on a distributed tensor; 0 where none was timed."""
    known = problem.accelerator.operations
    return 0.0 if known is None else known.distributed_launch_s or 0.0


def layer_launches_s(problem: Problem, plans: Plans, block: Block) -> F64:
    """Launches of a layer split by TP, both ways: its own, those of linear maps and norms, with SP more.

    Source: traces of torch 2.13, see `Launches`.
    """
    known = launches(problem)
    if known is None:
        return np.zeros(len(plans))
    vectors = block.norms * block.norm_weights
    count = known.layer + known.linear_map * maps(block) + known.norm_vector * vectors
    more = norm_launches(known, block.norms, block.norm_weights) * (plans.sp == 1)
    return np.where(plans.tp > 1, (count + more) * launch_s(problem), 0.0)


def end_launches_s(problem: Problem, plans: Plans, has_embedding: F64, has_head: F64) -> F64:
    """Launches of the ends under TP: of the embedding, of the last norm, of the head and the loss.

    Source: traces of torch 2.13, see `Launches`.
    """
    known = launches(problem)
    if known is None:
        return np.zeros(len(plans))
    vectors = problem.workload.network.main.final_norm_weights
    last = known.norm_vector * vectors + norm_launches(known, 1, vectors) * (plans.sp == 1)
    count = known.embedding * has_embedding + (known.head + last) * has_head
    return np.where(plans.tp > 1, count * launch_s(problem) * plans.micro_batches, 0.0)


def norm_launches(known: Launches, norms: int, norm_weights: int) -> float:
    """More launches of norms of the hidden stream under SP; one with one vector of weights is an RMSNorm."""
    return norms * (known.rms_norm if norm_weights == 1 else known.layer_norm)


def update_launches_s(problem: Problem, plans: Plans, matrices: F64, norms: F64) -> F64:
    """Launches of the optimizer for each parameter that is a distributed tensor, by its moments.

    These are all where they are sharded (FSDP2); under TP matrices, with SP norms as well, or all where
    weights alone are distributed tensors. Source: traces of torch 2.13, see `Launches`.
    """
    known = launches(problem)
    if known is None:
        return np.zeros(len(plans))
    is_sharded, is_split = (plans.zero >= 3) & (plans.shard > 1), plans.tp > 1
    is_alone = problem.messages.distributed_tensors is DistributedTensors.WEIGHTS
    parameters = np.where(is_sharded | is_split, matrices, 0.0)
    parameters = parameters + np.where(is_sharded | (is_split & ((plans.sp == 1) | is_alone)), norms, 0.0)
    return parameters * known.update[problem.workload.optimizer.moments] * launch_s(problem)


def norm_sums(problem: Problem, plans: Plans) -> F64:
    """How often a step sums the gradient of a norm over tensor ranks under SP, which split its tokens.

    As often as the optimizer reads it, or once a micro-batch; so always where FSDP2 reduces it.
    Source: traces of torch 2.13, see `Launches`.
    """
    known = launches(problem)
    if known is None or problem.workload.is_frozen:
        return np.zeros(len(plans))
    is_each = (plans.zero >= 3) & (plans.shard > 1) | (known.gradient_uses is None)
    uses = 1 if known.gradient_uses is None else known.gradient_uses[problem.workload.optimizer.moments]
    sums = np.where(is_each, plans.micro_batches, uses).astype(np.float64)
    return np.where((plans.sp == 1) & (plans.tp > 1), sums, 0.0)


def matrices(network: Network, layer_counts: F64) -> F64:
    """Linear maps in the layers of a rank. Shapes: (n, kinds) of layers, (n,)."""
    each = [float(maps(block)) for _, block in kinds(network)]
    return np.asarray(layer_counts @ np.array(each), np.float64)


def norms(network: Network, layer_counts: F64) -> F64:
    """Vectors of weights of norms in the layers of a rank. Shapes: (n, kinds) of layers, (n,)."""
    each = [float(block.norms * block.norm_weights) for _, block in kinds(network)]
    return np.asarray(layer_counts @ np.array(each), np.float64)


def maps(block: Block) -> int:
    """Linear maps of a layer beside those of experts, which TP leaves whole; all tensors of a traced one."""
    plain = (part for part in block.parts if isinstance(part, (Attention, Mixer, FeedForward, Linear)))
    seen = traced_part(block)
    return sum(len(linear_maps(part, 0)) for part in plain) + (0 if seen is None else seen.tensors)
