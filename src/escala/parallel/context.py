"""Context parallelism: a sequence split over ranks, keys and values exchanged."""

from torch import nn

from escala.errors import InvalidInput
from escala.parallel.batch import Batch
from escala.parallel.mesh import Mesh
from escala.parallel.parts import Parts


def split_context(chunk: nn.Module, parts: Parts, mesh: Mesh) -> None:
    """Nothing at degree 1."""
    if mesh.plan.cp > 1:
        raise InvalidInput("context parallelism is not run yet; use cp=1")


def local_part(batch: Batch, mesh: Mesh) -> Batch:
    """The tokens of a rank's samples that this context rank learns from: all at degree 1."""
    return batch
