"""Tensor parallelism inside nodes, FSDP2 across them."""

import lightning as L  # as its documentation writes it
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from model import Transformer, dataset


class Model(L.LightningModule):
    def configure_model(self):
        self.net = Transformer()
        plan = {"feed_forward.w1": ColwiseParallel(), "feed_forward.w2": RowwiseParallel()}
        for block in self.net.layers:
            parallelize_module(block, self.device_mesh["tensor_parallel"], plan)
            fully_shard(block, mesh=self.device_mesh["data_parallel"])
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch):
        return self.net(batch[:, :-1], batch[:, 1:])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3, foreach=True)


trainer = L.Trainer(
    accelerator="cuda",
    devices=8,
    num_nodes=2,
    strategy=ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=4),
    precision="bf16-true",
    max_epochs=1,
)
trainer.fit(Model(), torch.utils.data.DataLoader(dataset(), batch_size=8))
