"""Expert parallelism: stacked experts dealt to ranks, and tokens sent to them as the plan says.

Experts are modules that hold `gate_up_proj` (experts, 2 x width, hidden) and `down_proj` (experts, hidden,
width) and are called with tokens, chosen experts and weights, as ours and those of transformers are.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from escala.model.plan import Dispatcher
from escala.parallel.dispatch import Experts, Run, by_all_gather, by_all_to_all, divided, on_own
from escala.parallel.layouts import Stream
from escala.parallel.mesh import TENSOR, Mesh
from escala.parallel.parts import Parts
from escala.parallel.weights import View, Weights, around, seen_in_parts
from escala.parallel.words import is_experts

WIDE, NARROW = "gate_up_proj", "down_proj"
EXPERTS, WIDTH = "ep", "etp"
"""Axes of the mesh of experts: which of them a rank has, and how much of their width."""
WAYS: Final = {Dispatcher.ALL_TO_ALL: by_all_to_all, Dispatcher.ALL_GATHER: by_all_gather}


def split_experts(chunk: nn.Module, parts: Parts, mesh: Mesh) -> None:
    """Deal the experts of a chunk to its expert ranks; nothing where each rank has all of all."""
    plan = mesh.plan
    for module in [each for each in chunk.modules() if is_experts(each)]:
        if plan.ep * plan.etp > 1:
            _lay(module, mesh)
            around(module, _instead(module, _run(Experts(module), mesh)))
        elif plan.tp > 1:
            _keep_whole(module, Stream(mesh=mesh.axis(TENSOR), splits_tokens=plan.sp))


def _keep_whole(module: nn.Module, stream: Stream) -> None:
    weights = Weights(stream.mesh)
    for name in (WIDE, NARROW):
        weights.lay(module, name, (Replicate(),), View(gradients=(stream.gradient,)))


def _lay(module: Any, mesh: Mesh) -> None:
    """Experts along one axis, their width along the other; a width alone is split as other weights are."""
    plan = mesh.plan
    assert mesh.experts is not None
    names = tuple(name for name in (EXPERTS, WIDTH) if getattr(plan, name) > 1)
    ranks = mesh.experts[names] if EXPERTS in names else mesh.axis(TENSOR)
    dealt = (Shard(0),) if EXPERTS in names else ()
    pieces = module.gate_up_proj.shape[1] // module.down_proj.shape[2]  # gate, then up; or up alone
    places = {WIDE: _StridedShard(1, split_factor=pieces), NARROW: Shard(2)}
    weights = Weights(ranks)
    for name, place in places.items():
        whole = module._parameters[name].numel()
        weights.lay(module, name, (*dealt, place) if WIDTH in names else dealt)
        assert module._parameters[name].to_local().numel() * plan.ep * plan.etp == whole, (name, whole)


def _run(experts: Experts, mesh: Mesh) -> Run:
    plan = mesh.plan
    assert mesh.experts is not None
    run = WAYS[plan.dispatcher](experts, mesh.experts[EXPERTS]) if plan.ep > 1 else _alone(experts)
    return divided(run, Stream(mesh=mesh.axis(TENSOR), splits_tokens=plan.sp)) if plan.etp > 1 else run


def _alone(experts: Experts) -> Run:
    return lambda tokens, chosen, weights: on_own(experts, tokens, chosen, weights)


def _instead(module: nn.Module, run: Run) -> Callable[..., torch.Tensor]:
    """What stands in place of a module's own forward."""

    def call(_: Callable[..., Any], tokens: torch.Tensor, chosen: Any, weights: Any) -> torch.Tensor:
        with seen_in_parts(module):
            return run(tokens, chosen, weights)

    return call
