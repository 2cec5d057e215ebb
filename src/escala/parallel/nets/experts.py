"""Routed experts of a decoder: a router, stacked experts, and the one that every token uses."""

import torch
from torch import nn
from torch.nn import functional

from escala.model.network import Experts


class Router(nn.Module):
    """Which experts a token goes to: the top k of a softmax, their shares made to add up to one."""

    def __init__(self, hidden: int, part: Experts) -> None:
        super().__init__()
        self.top_k = part.top_k
        self.weight = nn.Parameter(torch.empty(part.experts, hidden))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Experts (tokens, k) and their weights (tokens, k)."""
        shares = functional.softmax(functional.linear(tokens, self.weight).float(), dim=-1)
        weights, chosen = shares.topk(self.top_k, dim=-1)
        return chosen, (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype)


class StackedExperts(nn.Module):
    """Experts as stacked matrices, worked on one after the other; called and named as transformers does."""

    def __init__(self, hidden: int, part: Experts) -> None:
        super().__init__()
        self.is_gated = part.is_gated
        self.gate_up_proj = nn.Parameter(torch.empty(part.experts, (1 + part.is_gated) * part.width, hidden))
        self.down_proj = nn.Parameter(torch.empty(part.experts, hidden, part.width))

    def activate(self, wide: torch.Tensor) -> torch.Tensor:
        """SwiGLU of the packed gate and up parts, or GELU."""
        if not self.is_gated:
            return functional.gelu(wide, approximate="tanh")
        gate, up = wide.chunk(2, dim=-1)
        return functional.silu(gate) * up

    def forward(self, tokens: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Weighted sum over the chosen experts of each token: (tokens, hidden)."""
        result = torch.zeros_like(tokens)
        for expert in range(len(self.gate_up_proj)):
            token, rank = torch.where(chosen == expert)
            wide = self.activate(functional.linear(tokens[token], self.gate_up_proj[expert]))
            narrow = functional.linear(wide, self.down_proj[expert]) * weights[token, rank, None]
            result = result.index_add(0, token, narrow)
        return result


class RoutedExperts(nn.Module):
    """The feed-forward part of a mixture-of-experts layer."""

    def __init__(self, hidden: int, part: Experts, shared: nn.Module | None) -> None:
        super().__init__()
        self.gate = Router(hidden, part)
        self.experts = StackedExperts(hidden, part)
        self.shared_expert = shared

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Routed and shared experts together."""
        tokens = hidden.flatten(0, 1)
        mixed = self.experts(tokens, *self.gate(tokens)).view_as(hidden)
        return mixed if self.shared_expert is None else mixed + self.shared_expert(hidden)
