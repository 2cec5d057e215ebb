"""Fine-tunes a decoder with FSDP2: built without memory, sharded block by block, saved in shards."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoConfig, AutoModelForCausalLM

from dataset import PackedTokens

MICRO_BATCH = 2
ACCUMULATION = 8


def main() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))

    config = AutoConfig.from_pretrained("meta-llama/Llama-3.1-8B")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.gradient_checkpointing_enable()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")

    data = PackedTokens("tokens", 4096)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=MICRO_BATCH, sampler=sampler, num_workers=2, pin_memory=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            loss = model(**batch).loss / ACCUMULATION
            loss.backward()
            if (step + 1) % ACCUMULATION == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=f"checkpoint-{epoch}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
