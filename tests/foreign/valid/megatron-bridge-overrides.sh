#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node=8 scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config \
    model.tensor_model_parallel_size=2 model.sequence_parallel=true train.global_batch_size=64 \
    train.micro_batch_size=1 train.train_iters=100 logger.log_interval=1 \
    checkpoint.save=$OUT ddp.average_in_collective=true
