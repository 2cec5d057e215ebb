"""Seconds that no schedule of a plan undercuts: its work, its longest chain, its busiest group's traffic.

What a step takes beyond the highest of them is what better scheduling could gain at most.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from escala.model.bounds import over
from escala.model.columns import F64, I64
from escala.model.efficiency import linear_flop_per_s
from escala.model.ends import embedding_s, head_s
from escala.model.estimate import deal, timed_layers
from escala.model.flops import forward_by_learning, head_flop
from escala.model.layers import matmul_backward_ratio
from escala.model.lengths import useful_shares
from escala.model.matmuls import layer_work, stack_shape
from escala.model.network import Learning
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.replicas import gathers_per_step, layer_traffic, replica_traffic
from escala.model.slowest import slowest_rank
from escala.model.stages import kinds, mean_slots


class Floor(IntEnum):
    """Which bound is the highest."""

    WORK = 0
    CHAIN = 1
    LINK = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Floors:
    """Lower bounds of a step. Shapes: (n,)."""

    work_s: F64
    chain_s: F64
    link_s: F64

    @property
    def floor_s(self) -> F64:
        """The highest of the three: max(work / devices, longest chain, traffic)."""
        return np.asarray(np.maximum.reduce([self.work_s, self.chain_s, self.link_s]), np.float64)

    def gap(self, step_s: F64) -> F64:
        """What a step takes beyond its floor, as a share of the floor."""
        return np.asarray(step_s / self.floor_s - 1.0, np.float64)

    @property
    def highest(self) -> I64:
        """Code of the highest one, see `Floor`."""
        return np.asarray(np.argmax([self.work_s, self.chain_s, self.link_s], axis=0), np.int64)


def floors(problem: Problem, plans: Plans) -> Floors:
    """All lower bounds of every plan."""
    return Floors(
        work_s=work_s(problem, plans), chain_s=chain_s(problem, plans), link_s=link_s(problem, plans)
    )


def work_s(problem: Problem, plans: Plans) -> F64:
    """Work bound T1 / p: matrix products, head and attention at the speed of large products / devices.

    Attention with its causal saving, backward twice forward; padding, passes over memory and recompute are
    left out.
    Source: Brent 1974 (The Parallel Evaluation of General Arithmetic Expressions), lemma 2.
    """
    work = problem.workload
    groups = forward_by_learning(work.network, work.sequence_tokens)
    products = sum(group[0] * _passes(problem, learning) for learning, group in groups.items())
    trained, frozen = head_flop(work.network, work.sequence_tokens)
    plain, high = (linear_flop_per_s(problem, plans.precision, is_high=each) for each in (False, True))
    high_flop = trained * (2.0 if work.is_frozen else 3.0) + frozen * 2.0
    of_products, of_attention = useful_shares(work)
    high_flop *= of_products
    if problem.accelerator.operations is None:
        high_flop += of_attention * masked_attention_flop(problem)
    one_s = of_products * products / plain + high_flop / high
    return np.asarray(work.global_batch * one_s / plans.devices, np.float64)


def _passes(problem: Problem, learning: Learning) -> float:
    return 1.0 + float(np.minimum(matmul_backward_ratio(problem, learning), 2.0))


def masked_attention_flop(problem: Problem) -> float:
    """Work of all attention cores on one sample, 3 * forward, keys that the mask hides left out.

    Forward alone in frozen layers with nothing trained before them.
    """
    one, total = Plans.of(Plan()), 0.0
    for stack, block in kinds(problem.workload.network):
        shape = stack_shape(one, stack, problem.workload.sequence_tokens)
        count = stack.count(stack.blocks.index(block)) * (1.0 if block.learning is Learning.STILL else 3.0)
        total += count * sum(float(core.flop[0]) for core in layer_work(block, stack, shape).cores)
    return total


def chain_s(problem: Problem, plans: Plans) -> F64:
    """Longest chain: one sample forward and backward through all layers, stage after stage.

    No number of replicas shortens it; TP and CP do. Source: Brent 1974, critical path T_infinity.
    """
    alone = replace(plans, micro_batch=np.ones(len(plans), np.int64))
    pairs = mean_slots(problem.workload.network, alone)
    layers_s = over(pairs, [each.forward_s + each.backward_s for each in timed_layers(problem, alone)])
    ends_s = head_s(problem, alone) + embedding_s(problem, alone)
    return np.asarray(layers_s * plans.pp + ends_s, np.float64)


def link_s(problem: Problem, plans: Plans) -> F64:
    """Communication bound: all traffic of the busiest group at the speed of its links, hidden or not.

    Groups are those that shard states, those that reduce gradients, and the exposed part of TP, CP and EP.
    """
    dealt, layers = deal(problem, plans), timed_layers(problem, plans)
    rank = slowest_rank(problem, plans, dealt.pairs, dealt.parts, layers)
    gather, scatter = layer_traffic(problem, plans, rank)
    forward, again, scatters = gathers_per_step(problem, plans)
    is_sharded = (plans.zero >= 3) & (plans.shard > 1)
    least_ratio = min(problem.engine.time.gather_ratio, 1.0)
    sharding_s = np.where(is_sharded, least_ratio * (gather * (forward + again) + scatter * scatters), 0.0)
    replicas_s = np.where(plans.local_steps > 1, 0.0, replica_traffic(problem, plans, rank))
    inside = (each.tensor_parallel_s + each.context_parallel_s + each.expert_parallel_s for each in layers)
    inside_s = sum((rank.layer_counts[:, kind] * s for kind, s in enumerate(inside)), np.zeros(len(plans)))
    return np.asarray(np.maximum.reduce([sharding_s, replicas_s, inside_s * plans.micro_batches]), np.float64)
