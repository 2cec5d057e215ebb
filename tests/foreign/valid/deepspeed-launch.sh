#!/bin/bash
export NCCL_DEBUG=WARN
GPUS=${GPUS:-8}
deepspeed --num_gpus $GPUS --master_port 29501 train.py \
  --model_name_or_path Qwen/Qwen2.5-7B \
  --bf16 True \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 8 \
  --learning_rate 1e-5 \
  --deepspeed deepspeed-zero3-offload-trainer.json
