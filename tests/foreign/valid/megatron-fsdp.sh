#!/bin/bash
# weights sharded over all data parallel ranks, two replicas of them
unset CUDA_DEVICE_MAX_CONNECTIONS
torchrun --nproc-per-node 8 --nnodes 2 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" \
    --master-port 29500 pretrain_gpt.py \
    --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params \
    --num-distributed-optimizer-instances 2 --use-distributed-optimizer --ckpt-format fsdp_dtensor \
    --no-gradient-accumulation-fusion --init-model-with-meta-device \
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 \
    --seq-length 4096 --max-position-embeddings 4096 --swiglu --normalization RMSNorm \
    --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope \
    --micro-batch-size 2 --global-batch-size 256 --train-iters 1000 --lr 3e-4 --min-lr 3e-5 --bf16 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --tokenizer-type Llama2Tokenizer --tokenizer-model tokenizer.model --data-path data/text_document
