#!/bin/bash
# Llama 3.1 405B as torchtitan ships it, on 64 nodes
export OMP_NUM_THREADS=8
torchrun --nnodes=64 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=405b \
  --rdzv-endpoint="${HEAD_NODE}:29500" \
  -m torchtitan.train --module llama3 --config llama3_405b \
  --parallelism.data_parallel_shard_degree 64 \
  --training.steps 100 \
  --training.seq_len 8192 \
  activation-checkpoint:full
