"""Expert parallelism: experts dealt to ranks, tokens sent to them."""

from torch import nn

from escala.errors import InvalidInput
from escala.parallel.mesh import Mesh
from escala.parallel.parts import Parts


def split_experts(chunk: nn.Module, parts: Parts, mesh: Mesh) -> None:
    """Nothing at degree 1."""
    if mesh.plan.ep > 1:
        raise InvalidInput("expert parallelism is not run yet; use ep=1")
