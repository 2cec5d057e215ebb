python3 -m maxtext.trainers.pre_train.train_compile base.yml compile_topology=v5p-256 \
    compile_topology_num_slices=1 model_name=llama3.1-405b per_device_batch_size=0.5 \
    ici_fsdp_parallelism=32 ici_tensor_parallelism=4 max_target_length=8192 remat_policy=full \
    shard_optimizer_over_data=false
