"""Llama 3.1 8B on one node, fully sharded, compiled."""

from torchtitan.config import CompileConfig
from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer


def llama3_8b_c4() -> Trainer.Config:
    config = llama3_8b()
    config.training.local_batch_size = 2
    config.training.steps = 5000
    config.compile = CompileConfig(enable=True)
    config.checkpoint.enable = True
    config.metrics.enable_wandb = True
    config.lr_scheduler.warmup_steps = 500
    return config
