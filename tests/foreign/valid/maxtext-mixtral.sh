#!/bin/bash
set -e
export LIBTPU_INIT_ARGS="--xla_tpu_scoped_vmem_limit_kib=98304"
python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml run_name=$RUN_NAME \
    base_output_directory=$OUTPUT model_name=mixtral-8x7b per_device_batch_size=4 \
    ici_fsdp_parallelism=-1 ici_expert_parallelism=8 max_target_length=4096 steps=20 \
    megablox=True sparse_matmul=True remat_policy=full dtype=bfloat16 weight_dtype=float32 \
    dataset_type=synthetic enable_checkpointing=False
