#!/usr/bin/env bash
#SBATCH --job-name=sft
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=64
GPUS_PER_NODE=8
srun accelerate launch --config_file accelerate-fsdp2-llama.yaml \
  --num_processes $((SLURM_NNODES * GPUS_PER_NODE)) --num_machines 2 --machine_rank $SLURM_NODEID \
  --main_process_ip node0 --main_process_port 29500 \
  train.py --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --per_device_train_batch_size 1
