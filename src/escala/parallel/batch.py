"""What one rank learns from in a step."""

from dataclasses import dataclass, replace
from typing import Final, Self

import torch

IGNORED: Final = -100
"""A target that is none: cross-entropy passes over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Samples of one rank: inputs, what is to be predicted from them, and which tokens belong together.

    `inputs` are tokens (n, tokens) or images (n, channels, height, width); `targets` the next token of each
    (n, tokens), or labels (n,). `documents` numbers the document of each token within its row and
    `positions` is its place in the document, both (n, tokens); None where each row is one document. Where
    context ranks have some tokens of a row each, `documents` is still told of all.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    documents: torch.Tensor | None = None
    positions: torch.Tensor | None = None

    def __len__(self) -> int:
        """Samples."""
        return len(self.inputs)

    def rows(self, first: int, count: int) -> Self:
        """Some of the samples, in order."""
        return self._each(lambda tensor: tensor[first : first + count])

    def to(self, device: torch.device) -> Self:
        """The same samples on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: object) -> Self:
        assert callable(change)
        given = {name: getattr(self, name) for name in self.__slots__}
        return replace(self, **{name: change(value) for name, value in given.items() if value is not None})
