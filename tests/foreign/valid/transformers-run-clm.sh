#!/bin/bash
export OMP_NUM_THREADS=8
torchrun --standalone --nproc-per-node 8 run_clm.py \
  --model_name_or_path openai-community/gpt2 \
  --dataset_name Salesforce/wikitext \
  --dataset_config_name wikitext-103-raw-v1 \
  --block_size 1024 \
  --per_device_train_batch_size 16 \
  --per_device_eval_batch_size 16 \
  --gradient_accumulation_steps 2 \
  --learning_rate 6e-4 \
  --bf16 \
  --torch_compile \
  --do_train --do_eval \
  --eval_strategy steps --eval_steps 1000 \
  --max_steps 20000 \
  --output_dir out/gpt2
