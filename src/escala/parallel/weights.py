"""Parameters that are DTensors to optimizers and checkpoints, and plain tensors to their own module.

So a module of any library works on its rank's part without knowing of it, and its operations are dispatched
as those of plain tensors.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, distribute_tensor

Placements = tuple[Placement, ...]
RUNS: Final = "escala_runs"
"""Attribute of a module: whether its forward is running."""


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


@contextmanager
def seen_in_parts(module: nn.Module) -> Iterator[None]:
    """Inside, a module's parameters are this rank's parts; FSDP2 and others who ask for them get DTensors."""
    before = module.__dict__.get(RUNS, False)
    module.__dict__[RUNS] = True
    try:
        yield
    finally:
        module.__dict__[RUNS] = before


@cache
def _seeing(kind: type[nn.Module], name: str, view: View) -> type[nn.Module]:
    """A class of modules like another, whose forward has a view of one of its parameters."""

    def see(module: nn.Module) -> torch.Tensor | None:
        held = module._parameters[name]
        return view.of(held) if module.__dict__.get(RUNS, False) else held

    def forward(module: nn.Module, *given: Any, **named: Any) -> Any:
        with seen_in_parts(module):
            return kind.forward(module, *given, **named)

    body = {"__module__": kind.__module__, name: property(see), "forward": forward}
    return type(kind.__name__, (kind,), body)


def around(module: nn.Module, call: Callable[..., Any]) -> None:
    """Put a function around a module's forward: called with the forward before it and what that is given.

    Inside all hooks: weights are gathered by then, and not yet given back.
    """
    inner = module.forward

    def forward(*given: Any, **named: Any) -> Any:
        return call(inner, *given, **named)

    module.forward = forward
