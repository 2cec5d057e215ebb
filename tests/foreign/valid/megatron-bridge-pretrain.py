"""Llama 3.1 70B with Megatron-Bridge on 64 H100."""

import torch
from megatron.bridge.recipes.llama.h100.llama3 import llama31_70b_pretrain_32gpu_h100_bf16_config
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain


def main() -> None:
    cfg: ConfigContainer = llama31_70b_pretrain_32gpu_h100_bf16_config()
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.sequence_parallel = True
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.pipeline_dtype = torch.bfloat16
    cfg.model.context_parallel_size = 2
    cfg.model.seq_length = 8192
    cfg.dataset.seq_length = 8192
    cfg.train.micro_batch_size = 1
    cfg.train.global_batch_size = 256
    cfg.train.train_iters = 5000
    cfg.scheduler.lr_warmup_iters = 200
    cfg.optimizer.lr = 1.5e-4
    cfg.optimizer.min_lr = 1.5e-5
    cfg.ddp.overlap_grad_reduce = True
    cfg.mixed_precision = "bf16_with_fp8_current_scaling_mixed"
    cfg.logger.log_interval = 1
    pretrain(config=cfg, forward_step_func=forward_step)


if __name__ == "__main__":
    main()
