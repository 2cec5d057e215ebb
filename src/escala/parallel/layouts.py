"""How a hidden stream lies on a group of ranks, and the ways between layouts. Knows no module."""

from dataclasses import dataclass
from typing import Final

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from escala.errors import InvalidInput

TOKENS: Final = -2
"""The dim of tokens in a stream, (n, tokens, hidden) or (tokens, hidden)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A hidden stream on the ranks of a mesh of one axis: all of it on each, or some of its tokens on each.

    Tensors that go in and come out are a rank's own, never DTensors.
    """

    mesh: DeviceMesh
    splits_tokens: bool

    @property
    def ranks(self) -> int:
        """Ranks of the group."""
        return self.mesh.size()

    @property
    def place(self) -> int:
        """This rank's number in the group."""
        return self.mesh.get_local_rank()

    @property
    def gradient(self) -> Placement:
        """How gradients of weights that meet the stream lie: partial where ranks see some tokens."""
        return Partial() if self.splits_tokens else Replicate()

    def whole(self, own: torch.Tensor) -> torch.Tensor:
        """All tokens for work that ranks divide; its gradients are added up over ranks on the way back."""
        told = DTensor.from_local(own, self.mesh, [self._lies(own)], run_check=False)
        return told.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])

    def summed(self, partial: torch.Tensor) -> torch.Tensor:
        """The sum of what ranks made, laid as the stream lies."""
        self._refuse_uneven(partial)
        told = DTensor.from_local(partial, self.mesh, [Partial()], run_check=False)
        return told.redistribute(placements=[self._lies(partial)]).to_local()

    def own(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part of what every rank has; gradients of others stay with them."""
        if not self.splits_tokens:
            return whole
        self._refuse_uneven(whole)
        return whole.chunk(self.ranks, TOKENS)[self.place]

    def _lies(self, tensor: torch.Tensor) -> Placement:
        return Shard(tensor.ndim + TOKENS) if self.splits_tokens else Replicate()

    def _refuse_uneven(self, whole: torch.Tensor) -> None:
        tokens = whole.shape[TOKENS]
        if self.splits_tokens and tokens % self.ranks:
            raise InvalidInput(
                f"sequence parallelism cannot deal {tokens} tokens to {self.ranks} tensor ranks alike; "
                f"choose a sequence length that {self.ranks} divides, or a plan without sp"
            )
