"""Stages of a pipeline: a module cut at its blocks, and the schedule that runs them."""

from dataclasses import dataclass

from torch import nn

from escala.errors import InvalidInput
from escala.parallel.mesh import Mesh
from escala.parallel.parts import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The stages of one rank and the schedule that runs them."""


def cut(module: nn.Module, parts: Parts, mesh: Mesh) -> tuple[nn.Module, ...]:
    """The stages of this rank; the whole module without a pipeline."""
    if mesh.plan.pp > 1:
        raise InvalidInput("pipelines are not run yet; use pp=1")
    return (module,)


def pipeline_of(chunks: tuple[nn.Module, ...], mesh: Mesh) -> Pipeline | None:
    """The schedule over the stages of this rank; None without a pipeline."""
    return None
