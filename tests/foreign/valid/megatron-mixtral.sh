#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=4
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
MODEL_ARGS="
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 32768
    --normalization RMSNorm --position-embedding-type rope --rotary-base 1000000 --swiglu
    --untie-embeddings-and-output-weights --disable-bias-linear --no-masked-softmax-fusion
"
MOE_ARGS="
    --num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-permute-fusion
"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK \
    --master_addr $MASTER_ADDR --master_port 6000 pretrain_gpt.py \
    $MODEL_ARGS $MOE_ARGS \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --expert-model-parallel-size 4 \
    --expert-tensor-parallel-size 1 --sequence-parallel --use-distributed-optimizer \
    --overlap-grad-reduce --overlap-param-gather \
    --micro-batch-size 1 --global-batch-size 256 --train-iters 500000 --lr 1e-4 --min-lr 1e-5 \
    --lr-decay-style cosine --lr-warmup-iters 500 --clip-grad 1.0 --weight-decay 0.1 --bf16 \
    --recompute-granularity selective --recompute-modules moe_act layernorm \
    --tokenizer-type Llama2Tokenizer --tokenizer-model /data/tokenizer.model \
    --data-path 0.6 /data/a_text_document 0.4 /data/b_text_document --split 99990,8,2 "$@" 2>&1 | tee log.txt
