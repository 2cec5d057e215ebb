"""Stages of a pipeline: a module cut at its blocks, and the schedule that runs them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from escala.errors import InvalidInput
from escala.parallel.batch import Batch
from escala.parallel.mesh import Mesh
from escala.parallel.parts import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The stages of one rank and the schedule that runs them."""

    def run(self, batches: Sequence[Batch], scale: torch.Tensor) -> list[torch.Tensor]:
        """Forward and backward of all micro-batches: their loss sums * scale, on ranks of the last stage."""
        raise NotImplementedError

    def evaluate(self, batches: Sequence[Batch]) -> list[torch.Tensor]:
        """Loss sums of micro-batches without backward, on ranks of the last stage."""
        raise NotImplementedError


def cut(module: nn.Module, parts: Parts, mesh: Mesh) -> tuple[nn.Module, ...]:
    """The stages of this rank; the whole module without a pipeline."""
    if mesh.plan.pp > 1:
        raise InvalidInput("pipelines are not run yet; use pp=1")
    return (module,)


def pipeline_of(chunks: tuple[nn.Module, ...], mesh: Mesh) -> Pipeline | None:
    """The schedule over the stages of this rank; None without a pipeline."""
    return None
