"""Programs that train, and what is found in them."""

from pathlib import Path

from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job

DDP = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

STEPS = 4


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    model = DDP(Model().cuda(device), device_ids=[device])
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=4, pin_memory=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x.cuda(device), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            torch.save(model.state_dict(), "model.pt")
    dist.destroy_process_group()
"""
FSDP = """import os
import functools
import torch
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from transformers import AutoModelForCausalLM

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
with torch.device("meta"):
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for block in model.model.layers:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
HEAD = "import torch\n"


def job(folder: Path, text: str, launch: str = "", **given: Value) -> Job:
    """The job of a program and of the script that launches it."""
    (folder / "train.py").write_text(text)
    paths = [str(folder / "train.py")]
    if launch:
        (folder / "run.sh").write_text(launch)
        paths.append(str(folder / "run.sh"))
    return read_job(paths, given, {})


def rules(found: Job) -> list[str]:
    """The rules that found something, in their order."""
    return [each.rule for each in found.findings]


def lines(text: str, found: Job) -> list[str]:
    """The lines that findings point at."""
    rows = text.split("\n")
    return [rows[each.place.line - 1].strip() for each in found.findings if each.place]
