"""A language model, fully sharded."""

import pytorch_lightning as pl
import torch
from my_data import Tokens
from pytorch_lightning.strategies import FSDPStrategy
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


class Model(pl.LightningModule):
    def configure_model(self):
        self.net = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")

    def training_step(self, batch, _):
        return self.net(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.trainer.model.parameters(), lr=2e-5)


if __name__ == "__main__":
    strategy = FSDPStrategy(
        auto_wrap_policy={LlamaDecoderLayer},
        activation_checkpointing_policy={LlamaDecoderLayer},
        sharding_strategy="FULL_SHARD",
        state_dict_type="sharded",
        limit_all_gathers=True,
    )
    trainer = pl.Trainer(
        devices="auto",
        strategy=strategy,
        precision="bf16-true",
        max_steps=1000,
        accumulate_grad_batches=2,
    )
    trainer.fit(Model(), DataLoader(Tokens("data.bin"), batch_size=1, num_workers=4))
