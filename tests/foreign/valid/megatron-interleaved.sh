#!/bin/bash
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
export CUDA_DEVICE_MAX_CONNECTIONS=1
options=" \
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
    --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 \
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
    --tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 4 \
    --num-layers-per-virtual-pipeline-stage 5 --use-distributed-optimizer --overlap-grad-reduce \
    --overlap-param-gather --tp-comm-overlap --micro-batch-size 1 --global-batch-size 256 \
    --train-iters 100000 --lr 1.5e-4 --min-lr 1.5e-5 --lr-warmup-iters 2000 --bf16 \
    --recompute-granularity full --recompute-method block --recompute-num-layers 1 \
    --cuda-graph-impl none --vocab-size 128256 --tokenizer-type NullTokenizer --mock-data"
run_cmd="python -u pretrain_gpt.py ${options}"
srun -l --container-image=image.sqsh sh -c "${run_cmd}"
