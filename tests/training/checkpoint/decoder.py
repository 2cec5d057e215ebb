"""A small module with dropout, sharded by hand, and data that depends on the sample alone."""

from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from escala.training.checkpoint import Checkpoints, TrainState, load

WORDS, WIDTH, LAYERS, TOKENS, GLOBAL_BATCH = 64, 32, 4, 16, 8


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed = hidden.cumsum(1) / 8
        return hidden + self.dropout(self.down(torch.tanh(self.up(self.norm(mixed)))))


def samples(first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [
        torch.randint(WORDS, (TOKENS + 1,), generator=torch.Generator().manual_seed(7 + place))
        for place in range(first, first + count)
    ]
    tokens = torch.stack(rows)
    return tokens[:, :-1], tokens[:, 1:]


class Run:
    """A sharded module; `train` goes on to a step, and saves at one where asked."""

    def __init__(self, dropout: float = 0.0, optimizer: type = torch.optim.AdamW) -> None:
        self.ranks, self.rank = dist.get_world_size(), dist.get_rank()
        torch.manual_seed(0)
        blocks = [Block(dropout) for _ in range(LAYERS)]
        self.module = nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.Linear(WIDTH, WORDS))
        mesh = init_device_mesh("cpu", (self.ranks,))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.module, mesh=mesh)
        self.optimizer = optimizer(self.module.parameters(), lr=1e-2)
        self.state = TrainState(chunks=(self.module,), optimizer=self.optimizer, seed=self.rank)

    def train(self, last: int, checkpoints: Checkpoints | None = None, at: int = -1) -> list[float]:
        losses = []
        for step in range(self.state.step + 1, last + 1):
            losses.append(self.step(self.state.samples))
            self.state = replace(self.state, step=step, samples=self.state.samples + GLOBAL_BATCH)
            if checkpoints is not None and step == at:
                checkpoints.save(self.state)
        return losses

    def resume(self, folder: Path) -> tuple[str, ...]:
        resumed = load(folder, self.state)
        self.state = resumed.state
        return resumed.notes

    def step(self, first: int) -> float:
        count = GLOBAL_BATCH // self.ranks
        inputs, targets = samples(first + self.rank * count, count)
        self.optimizer.zero_grad()
        loss = cross_entropy(self.module(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        self.optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return float(total) / self.ranks
