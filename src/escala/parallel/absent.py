"""What stands in a stage where another stage has a part of the module. Knows nothing else."""

from typing import Any

import torch
from torch import nn


class Absent(nn.Module):
    """Passes the hidden stream on, whatever else it is given."""

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """What it was given."""
        return hidden_states


class NoPositions(Absent):
    """Stands for embedded positions, which the first stage has added: zero."""

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Zero, for whatever positions."""
        return torch.zeros((), device=hidden_states.device)
