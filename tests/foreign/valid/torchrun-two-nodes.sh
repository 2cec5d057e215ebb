#!/usr/bin/env bash
# Started on each of two nodes with HEAD set to the name of the first one.
set -euo pipefail

GPUS_PER_NODE=8
NNODES=${NNODES:-2}
export OMP_NUM_THREADS=8
export NCCL_DEBUG=WARN

DISTRIBUTED_ARGS=(
    --nnodes "$NNODES"
    --nproc-per-node "$GPUS_PER_NODE"
    --rdzv-backend c10d
    --rdzv-id "${JOB_ID:-pretrain}"
    --rdzv-endpoint "$HEAD:29500"
    --max-restarts 1
)

torchrun "${DISTRIBUTED_ARGS[@]}" train.py --epochs 3 --batch-size 32
