"""Tensor and sequence parallelism: matrices split over ranks as the network's own plan says."""

from torch import nn

from escala.errors import InvalidInput
from escala.parallel.mesh import Mesh
from escala.parallel.parts import Parts


def split_tensors(chunk: nn.Module, parts: Parts, mesh: Mesh) -> None:
    """Nothing at degree 1."""
    if mesh.plan.tp > 1:
        raise InvalidInput("tensor parallelism is not run yet; use tp=1")
