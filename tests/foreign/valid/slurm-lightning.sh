#!/bin/bash -l
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:a100:4
#SBATCH -c 16
#SBATCH -t 0-12:00:00
#SBATCH --signal=SIGUSR1@90
##SBATCH --qos=high

module load cuda/12.4
srun --cpus-per-task=16 python train.py fit --trainer.num_nodes=2 --trainer.devices=4
