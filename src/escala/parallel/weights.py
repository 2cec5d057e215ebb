"""Parameters that are DTensors to optimizers and checkpoints, and plain tensors to their own module.

So a module of any library works on its rank's part without knowing of it, and its operations are dispatched
as those of plain tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, distribute_tensor

Placements = tuple[Placement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a module's own forward sees of a parameter: a rank's part, whose gradients are laid as told.

    `pieces` (pieces, ranks, place) takes from each piece of what lies on the rank the share of one place.
    A hidden one is seen as zeros: somebody else adds it.
    """

    gradients: Placements
    pieces: tuple[int, int, int] | None = None
    is_hidden: bool = False

    def of(self, held: torch.Tensor | None) -> torch.Tensor | None:
        """The view of a parameter, differentiable unless hidden."""
        if held is None:
            return None
        part = held.to_local(grad_placements=self.gradients) if isinstance(held, DTensor) else held
        if self.is_hidden:
            return torch.zeros_like(part.detach())
        return part if self.pieces is None else _share(part, *self.pieces)


def _share(whole: torch.Tensor, pieces: int, ranks: int, place: int) -> torch.Tensor:
    return torch.cat([piece.chunk(ranks)[place] for piece in whole.chunk(pieces)])


class Weights:
    """Lays parameters over a mesh; one that several modules share stays shared."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        self._made: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}

    def lay(self, module: nn.Module, name: str, placements: Placements, view: View | None = None) -> None:
        """Lay a parameter of a module as told; without a view the module sees its part as it lies.

        Every rank holds the whole parameter when this is called, and its part afterwards.
        """
        held = module._parameters[name]
        assert held is not None
        module._parameters[name] = self._laid(held, placements)
        module.__class__ = _seeing(module.__class__, name, view or View(gradients=placements))

    def _laid(self, parameter: nn.Parameter, placements: Placements) -> nn.Parameter:
        known = self._made.get(id(parameter))
        if known is None:
            laid = distribute_tensor(parameter.detach(), self.mesh, placements, src_data_rank=None)
            known = (parameter, nn.Parameter(laid, requires_grad=parameter.requires_grad))
            self._made[id(parameter)] = known
        assert known[1].placements == placements, (known[1].placements, placements)
        return known[1]


@cache
def _seeing(kind: type[nn.Module], name: str, view: View) -> type[nn.Module]:
    """A class of modules like another, with a view of one of its parameters."""
    see = property(lambda module: view.of(module._parameters[name]))
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, name: see})


def around(module: nn.Module, call: Callable[..., Any]) -> None:
    """Put a function around a module's forward: called with the forward before it and what that is given.

    Inside all hooks: weights are gathered by then, and not yet given back.
    """
    inner = module.forward

    def forward(*given: Any, **named: Any) -> Any:
        return call(inner, *given, **named)

    module.forward = forward
