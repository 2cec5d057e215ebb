"""How processes begin: rules about spawn, launchers and the process group, each broken and nearly broken."""

from pathlib import Path

import pytest

from foreign.script.programs import DDP, job, rules

SPAWNED = """import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank, world_size):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    model = DDP(net.cuda(rank), device_ids=[rank])
    for x in data:
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


mp.spawn(train, args=(4,), nprocs=4)
"""
UNCALLED = SPAWNED.rpartition("\n\n\n")[0] + "\n"
CALLED = UNCALLED + 'train(int(os.environ["RANK"]), 4)\n'
ADDRESS = SPAWNED.replace("import torch\n", 'import os\nimport torch\nos.environ["MASTER_ADDR"] = "a"\n', 1)
METHOD = SPAWNED.replace('"nccl",', '"nccl", init_method="tcp://a:1",')
RUN = "torchrun --nproc-per-node=4 train.py"
GROUPLESS = DDP.replace('    dist.init_process_group("nccl")\n', "").replace(
    "    dist.destroy_process_group()\n", ""
)


@pytest.mark.parametrize(
    ("text", "launch", "expected"),
    [
        (SPAWNED, "", ["script-spawn-address"]),
        (ADDRESS, "", []),
        (METHOD, "", []),
        (SPAWNED, RUN, ["script-spawn-twice"]),
        (SPAWNED, RUN.replace("4", "1"), []),
        (UNCALLED, RUN, ["script-rank-argument"]),
        (UNCALLED, "", []),
        (CALLED, RUN, []),
        (GROUPLESS, "", ["script-group-missing"]),
        (GROUPLESS.replace("import os\n", "import os\nfrom mine import setup\nsetup()\n", 1), "", []),
    ],
)
def test_the_start_of_processes(tmp_path: Path, text: str, launch: str, expected: list[str]) -> None:
    assert [name for name in rules(job(tmp_path, text, launch)) if "contradiction" not in name] == expected


def test_spawned_processes_are_counted(tmp_path: Path) -> None:
    assert job(tmp_path, METHOD).value("devices_per_node") == 4
