"""A small decoder with every kind of layout by hand, and data that depends on the sample alone."""

import copy
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

from escala.training.checkpoint import Checkpoints, TrainState, load

WORDS, WIDTH, LAYERS, TOKENS, GLOBAL_BATCH = 64, 32, 4, 16, 8
PLANS = {
    "fsdp": {"dp": 4, "zero": 3, "tp": 1, "pp": 1},
    "tensor": {"dp": 2, "zero": 3, "tp": 2, "pp": 1},
    "pipeline": {"dp": 2, "zero": 3, "tp": 1, "pp": 2},
    "plain": {"dp": 1, "zero": 0, "tp": 1, "pp": 1},
}


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed = hidden.cumsum(1) / 8
        return hidden + self.dropout(self.down(torch.tanh(self.up(self.norm(mixed)))))


class Decoder(nn.Module):
    def __init__(self, width: int = WIDTH, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed: nn.Module | None = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleDict({str(place): Block(width, dropout) for place in range(LAYERS)})
        self.head: nn.Module | None = nn.Linear(width, WORDS)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden if self.embed is None else self.embed(hidden)
        for layer in self.layers.values():
            hidden = layer(hidden)
        return hidden if self.head is None else self.head(hidden)


def samples(first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [
        torch.randint(WORDS, (TOKENS + 1,), generator=torch.Generator().manual_seed(7 + place))
        for place in range(first, first + count)
    ]
    tokens = torch.stack(rows)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


class Run:
    """A model under one of the layouts; `step` trains on one global batch and returns its loss."""

    def __init__(self, kind: str, dropout: float = 0.0, optimizer: type = torch.optim.AdamW) -> None:
        self.ranks, self.rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
        self.kind, model = kind, Decoder(dropout=dropout)
        build: dict[str, Callable[[Decoder], None]] = {
            "fsdp": self._fsdp,
            "tensor": self._tensor,
            "pipeline": self._pipeline,
            "plain": self._plain,
        }
        self.part, self.parts = self.rank, self.ranks
        build[kind](model)
        trained = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = optimizer(trained, lr=1e-2)
        self.state = TrainState(
            chunks=(self.model,), optimizer=self.optimizer, seed=self.part, plan={"plan": PLANS[kind]}
        )

    def train(self, last: int, checkpoints: Checkpoints | None = None, at: int = -1) -> list[float]:
        from dataclasses import replace

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
        count = GLOBAL_BATCH // self.parts
        inputs, targets = samples(first + self.part * count, count)
        self.optimizer.zero_grad()
        loss = self._learn(inputs, targets)
        self.optimizer.step()
        if self.ranks == 1:
            return float(loss)
        share = (
            loss.detach() * self.parts / self.ranks
        )  # every rank of a part knows its loss, or only the last
        dist.all_reduce(share)
        return float(share) / self.parts

    def _learn(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.kind == "pipeline":
            return self._learn_in_stages(inputs, targets)
        loss = loss_of(self.model(inputs), targets)
        loss.backward()
        return loss

    def _plain(self, model: Decoder) -> None:
        self.model = model
        self.part, self.parts = 0, 1

    def _fsdp(self, model: Decoder) -> None:
        mesh = init_device_mesh("cpu", (self.ranks,))
        for layer in model.layers.values():
            fully_shard(layer, mesh=mesh)
        self.model = fully_shard(model, mesh=mesh)

    def _tensor(self, model: Decoder) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        for layer in model.layers.values():
            parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
            for name, parameter in list(layer.norm.named_parameters()):
                whole = distribute_tensor(parameter.data, mesh["tp"], [Replicate()])
                layer.norm.register_parameter(name, nn.Parameter(whole))
            parallelize_module(layer, mesh["tp"], {"norm": Replicated()})
            fully_shard(layer, mesh=mesh["dp"])
        self.model = fully_shard(model, mesh=mesh["dp"])
        self.part, self.parts = self.rank // 2, 2

    def _pipeline(self, model: Decoder) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
        self.stage, self.part, self.parts = mesh.get_local_rank("pp"), mesh.get_local_rank("dp"), 2
        chunk = copy.deepcopy(model)
        if self.stage == 0:
            chunk.head = None
        else:
            chunk.embed = None
        for place in list(chunk.layers):
            if int(place) // 2 != self.stage:
                del chunk.layers[place]
        for layer in chunk.layers.values():
            fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=False)
        self.model = fully_shard(chunk, mesh=mesh["dp"], reshard_after_forward=False)
        stage = PipelineStage(self.model, self.stage, 2, torch.device("cpu"), group=mesh.get_group("pp"))
        self.schedule = ScheduleGPipe(stage, 2, loss_fn=loss_of)

    def _learn_in_stages(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.stage == 0:
            self.schedule.step(inputs)
            return torch.zeros(())
        losses: list[torch.Tensor] = []
        self.schedule.step(target=targets, losses=losses)
        return torch.stack(losses).mean() * 2  # the first stage knows no loss: count the last one's for both


def Replicated() -> object:  # noqa: N802 # stands beside the styles of torch
    from torch.distributed.tensor.parallel import PrepareModuleInput

    return PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
