"""States shared among data-parallel ranks: DDP, ZeRO by FSDP2, HSDP."""

from torch import nn

from escala.parallel.mesh import Mesh
from escala.parallel.parts import Parts


def share(chunk: nn.Module, parts: Parts, mesh: Mesh) -> nn.Module:
    """The chunk as data-parallel ranks run it; itself on one rank."""
    return chunk
