#!/bin/sh
# One line for each node, as older clusters do it.
torchrun --nnodes=4 --nproc_per_node=4 --node_rank="$NODE_RANK" \
  --master_addr="$MASTER_ADDR" --master_port=29400 \
  -m my_project.train --config configs/large.yaml
