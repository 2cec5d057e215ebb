"""Plain sequences as stages: modules whose children run one after the other, each from one tensor to one.

Nothing has to be tried to cut them: what stages compute in turn is what the sequence computes. The shapes
between stages are those of copies without memory, on the meta device.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from escala.model.plan import Plan


def chain_reasons(module: nn.Module, plan: Plan) -> Iterator[str]:
    """Why a chain cannot be run in stages."""
    if plan.dp * plan.cp > 1 and any(isinstance(each, _BatchNorm) for each in module.modules()):
        yield "stages of several replicas would keep batch statistics of their own; set pp or dp to 1"


class Shapes:
    """What the stages of a chain answer with, by the shape of what the first one is given."""

    def __init__(self, module: nn.Module, stages: Sequence[Sequence[str]]) -> None:
        self._stages = [[_without_memory(module.get_submodule(name)) for name in names] for names in stages]

    def of(self, inputs: torch.Tensor) -> tuple[torch.Size, ...]:
        """The shape of each stage's answer, in order."""
        stream, found = torch.empty_like(inputs, device="meta"), []
        with torch.no_grad():
            for units in self._stages:
                for unit in units:
                    stream = unit(stream)
                found.append(stream.shape)
        return tuple(found)


def _without_memory(unit: nn.Module) -> Any:
    return copy.deepcopy(unit).eval().to("meta")
