"""A small Llama-like decoder in plain PyTorch, which `cases.Shape.config` describes exactly.

RMSNorm, attention without positions (they cost no product), SwiGLU, an embedding and a head of their own.
"""

import torch
from torch import nn

from netlab.cases import Shape


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.hidden // shape.heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(shape.hidden, shape.hidden, bias=False) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            each(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for each in (self.wq, self.wk, self.wv)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden, shape.width, bias=False)
        self.up = nn.Linear(shape.hidden, shape.width, bias=False)
        self.down = nn.Linear(shape.width, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.RMSNorm(shape.hidden), nn.RMSNorm(shape.hidden)
        self.attention, self.feed = Attention(shape), FeedForward(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed(self.feed_norm(x))


class Decoder(nn.Module):
    """The whole network, or with `stage` of `stages` the part that one pipeline rank holds."""

    def __init__(self, shape: Shape, stage: int = 0, stages: int = 1) -> None:
        super().__init__()
        held = shape.layers // stages
        is_first, is_last = stage == 0, stage == stages - 1
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden) if is_first else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(held))
        self.norm = nn.RMSNorm(shape.hidden) if is_last else None
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False) if is_last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


def loss_of(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the next token over a micro-batch."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
