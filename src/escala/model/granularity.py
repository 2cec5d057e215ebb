"""How much a plan computes for each second that it communicates: by bucket, layer and stage. Judges nothing.

Granularity G = T_comp / T_comm. Above 1 communication can hide behind computation, below 1 some of it shows
whatever the schedule. NaN where nothing is sent.
"""

from dataclasses import dataclass

import numpy as np

from escala.model.columns import F64
from escala.model.estimate import deal, timed_layers
from escala.model.pipeline import send_once_s
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.replicas import layer_traffic, replica_traffic
from escala.model.slowest import Rank, slowest_rank


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Granularity:
    """Computing over communicating seconds. Shapes: (n,)."""

    bucket_ratio: F64
    layer_ratio: F64
    stage_ratio: F64


def granularity(problem: Problem, plans: Plans) -> Granularity:
    """G of the slowest rank: by bucket of gradients, by layer, by stage."""
    dealt = deal(problem, plans)
    rank = slowest_rank(problem, plans, dealt.pairs, dealt.parts, timed_layers(problem, plans))
    return Granularity(
        bucket_ratio=by_bucket(problem, plans, rank),
        layer_ratio=by_layer(problem, plans, rank),
        stage_ratio=by_stage(problem, plans, rank),
    )


def by_bucket(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Backward of one micro-batch / reduction of all its gradients; the same for each bucket's part."""
    return _ratio(rank.backward_s, replica_traffic(problem, plans, rank))


def by_layer(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Computing / (gathers and scatter of weights + exposed TP, CP and EP traffic), forward and backward."""
    sent = [
        (layer.tensor_parallel_s + layer.context_parallel_s + layer.expert_parallel_s)
        * rank.layer_counts[:, kind]
        for kind, layer in enumerate(rank.layers)
    ]
    inside_s = sum(sent, np.zeros(len(plans)))
    gather, scatter = layer_traffic(problem, plans, rank)
    is_sharded = (plans.zero >= 3) & (plans.shard > 1)
    gathered_s = np.where(is_sharded, gather * (1.0 + plans.reshard) + scatter, 0.0)
    return _ratio(rank.forward_s + rank.backward_s - inside_s, inside_s + gathered_s)


def by_stage(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Forward of one micro-batch of one chunk / sending its output to the next stage."""
    sent_s = np.where(plans.pp > 1, send_once_s(problem, plans, rank.wires), 0.0)
    return _ratio(rank.forward_s / plans.virtual_stages, sent_s)


def _ratio(computed_s: F64, sent_s: F64) -> F64:
    return np.divide(computed_s, sent_s, out=np.full_like(sent_s, np.nan), where=sent_s > 0)
