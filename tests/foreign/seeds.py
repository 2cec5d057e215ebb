"""Configurations that are valid: the files of tests/foreign/valid, and small ones of every syntax."""

from pathlib import Path

VALID = sorted(path for path in (Path(__file__).parent / "valid").iterdir() if path.suffix != ".md")
SMALL = {
    "deepspeed.json": """{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true}}
}
""",
    "accelerate.yaml": """distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
mixed_precision: bf16
num_machines: 1
num_processes: 8
""",
    "titan.toml": """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
tensor_parallel_degree = 2
""",
    "train.py": """import torch
from torch.nn.parallel import DistributedDataParallel as DDP
model = DDP(build().cuda())
for step, batch in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch).loss / 4
    loss.backward()
""",
    "run.sh": """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
export MASTER_ADDR=$(scontrol show hostnames | head -n 1)
ARGS=(--micro-batch-size 1 --global-batch-size 64)
srun torchrun --nnodes $SLURM_NNODES --nproc-per-node 8 pretrain_gpt.py \\
  --num-layers 32 --hidden-size 4096 --tensor-model-parallel-size 2 "${ARGS[@]}"
""",
    "notes.md": """Start it so:

```bash
torchrun --nproc-per-node=4 train.py --config ds.json
```

```json
{"train_batch_size": 64, "zero_optimization": {"stage": 2}}
```
""",
}


def seeds() -> dict[str, str]:
    """Text by file name."""
    return SMALL | {path.name: path.read_text("utf-8") for path in VALID}
