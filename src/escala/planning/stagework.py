"""Seconds and kept bytes of one micro-batch on every stage of one plan, from the model's layer formulas.

The model looks at whole ranks; a timeline needs each stage. Knows no order of tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from escala.model.activations import Kept
from escala.model.columns import F64, I64, Bool
from escala.model.ends import embedding_s, head_s
from escala.model.estimate import kept_layers
from escala.model.layers import LayerTime, matmul_backward_ratio
from escala.model.plan import Plan, Plans, Recompute
from escala.model.problem import Problem
from escala.model.stages import layer_kinds, rank_stages, stage_layers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageWork:
    """One micro-batch on every stage; `weight_s` is the part of the backward that gives weight gradients.

    Shapes: (stages,).
    """

    forward_s: F64
    backward_s: F64
    weight_s: F64
    kept_bytes: F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layers:
    """Every layer from input to output: its stage, its kind, whether it is recomputed in full."""

    stage: I64
    kind: I64
    is_recomputed: Bool


def stage_work(problem: Problem, plan: Plan, times: list[LayerTime]) -> StageWork:
    """Sum over the layers of each stage; the embedding is on the first stage, head and loss on the last.

    As in the model, a third of the ends is forward. FIRST_LAYERS recomputes the first layers of each rank.
    """
    plans = Plans.of(plan)
    layers = _layers(problem, plans, plan)
    stages = plan.pp * plan.virtual_stages
    ends_s = np.zeros(stages)
    ends_s[0] += embedding_s(problem, plans)[0]
    ends_s[-1] += head_s(problem, plans)[0]
    forward_s = _of_layers(times, "forward_s", layers)
    return StageWork(
        forward_s=_over_stages(forward_s, layers, stages) + ends_s / 3,
        backward_s=_over_stages(_backward_s(plan, times, layers), layers, stages) + ends_s * 2 / 3,
        weight_s=_over_stages(_weight_s(problem, times, layers), layers, stages)
        + _end_weight_s(problem, plans, stages),
        kept_bytes=_over_stages(_kept_bytes(problem, plan, layers), layers, stages),
    )


def _layers(problem: Problem, plans: Plans, plan: Plan) -> _Layers:
    network = problem.workload.network
    dealt = stage_layers(network, plans, 0)
    stage = np.repeat(np.arange(len(dealt)), dealt)
    recomputed = np.full(len(stage), plan.recompute is Recompute.FULL)
    if plan.recompute is Recompute.FIRST_LAYERS:
        for rank in range(plan.pp):
            held = rank_stages(rank, plan.pp, plan.virtual_stages, plan.schedule)
            own = np.concatenate([np.flatnonzero(stage == each) for each in held])
            recomputed[own[: plan.recompute_layers]] = True
    return _Layers(stage=stage, kind=np.array(layer_kinds(network), np.int64), is_recomputed=recomputed)


def _of_layers(kind_rows: Sequence[LayerTime | Kept], name: str, layers: _Layers) -> F64:
    """One number of every layer, from the columns of its kind."""
    of_kind = np.array([getattr(row, name)[0] for row in kind_rows], np.float64)
    return of_kind[layers.kind]


def _over_stages(of_layer: F64, layers: _Layers, stages: int) -> F64:
    return np.bincount(layers.stage, weights=of_layer, minlength=stages).astype(np.float64)


def _backward_s(plan: Plan, times: list[LayerTime], layers: _Layers) -> F64:
    """Backward of every layer with what it computes again before."""
    plain_s = _of_layers(times, "backward_s", layers)
    if plan.recompute is Recompute.SELECTIVE:
        return plain_s + _of_layers(times, "recompute_selective_s", layers)
    return plain_s + layers.is_recomputed * _of_layers(times, "recompute_full_s", layers)


def _weight_s(problem: Problem, times: list[LayerTime], layers: _Layers) -> F64:
    """Weight gradients of every layer: matrix products backward less one forward (gradient of the input).

    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), table 1.
    """
    ratio = matmul_backward_ratio(problem)
    return _of_layers(times, "matmul_s", layers) * (ratio - 1.0) / (ratio + 1.0)


def _end_weight_s(problem: Problem, plans: Plans, stages: int) -> F64:
    """Weight gradients of the ends: all of the embedding's backward, half of the head's; none when frozen."""
    weight_s = np.zeros(stages)
    if not problem.workload.is_frozen:
        weight_s[0] += embedding_s(problem, plans)[0] * 2 / 3
        weight_s[-1] += head_s(problem, plans)[0] / 3
    return weight_s


def _kept_bytes(problem: Problem, plan: Plan, layers: _Layers) -> F64:
    """What every layer keeps: all, what selective recompute leaves, or its checkpoint."""
    keeps = kept_layers(problem, Plans.of(plan))
    plain = "selective_bytes" if plan.recompute is Recompute.SELECTIVE else "whole_bytes"
    checkpoint = _of_layers(keeps, "checkpoint_bytes", layers)
    return np.where(layers.is_recomputed, checkpoint, _of_layers(keeps, plain, layers))
