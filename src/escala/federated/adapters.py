"""Low-rank adapters beside the linear maps of a small module, which are then all that is trained and sent.

Source: Hu et al. 2021 (LoRA), section 4.1.
"""

from math import sqrt
from typing import Final

import torch
from torch import nn

from escala.errors import InvalidInput

RANK: Final = 4
"""An assumption: the smallest of the ranks that the paper compares on all tasks."""
SCALE: Final = 2.0
"""alpha / rank, as is usual."""


class Adapted(nn.Module):
    """A linear map that stands, and a low-rank one beside it that begins as zero."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        rank = min(RANK, base.in_features, base.out_features)
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=sqrt(5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Base(x) + scale * B A x."""
        return self.base(inputs) + SCALE * (inputs @ self.lora_a.T @ self.lora_b.T)


def adapt(module: nn.Module) -> None:
    """Freeze the module and put adapters beside all its linear maps."""
    named = [name for name, each in module.named_modules() if type(each) is nn.Linear and name]
    if not named:
        raise InvalidInput("the module has no nn.Linear inside for LoRA; train all of it, or last layers")
    module.requires_grad_(False)
    for name in named:
        module.set_submodule(name, Adapted(module.get_submodule(name)))
