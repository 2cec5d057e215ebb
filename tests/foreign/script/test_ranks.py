"""Which device a rank takes, and how many processes a program makes."""

from pathlib import Path

import pytest

from foreign.script.programs import DDP, HEAD, job, rules

GROUP = """import torch
torch.distributed.init_process_group("nccl")
{line}
torch.distributed.destroy_process_group()
"""
ARGUMENT = """import argparse
import torch
p = argparse.ArgumentParser()
p.add_argument("{argument}", type=int)
"""


@pytest.mark.parametrize(
    ("nodes", "device", "expected"),
    [
        (1, "dist.get_rank()", []),
        (2, "dist.get_rank()", ["script-global-rank"]),
        (2, 'int(os.environ["RANK"])', ["script-global-rank"]),
        (2, "dist.get_rank() % 8", []),
        (2, 'int(os.environ["LOCAL_RANK"])', []),
    ],
)
def test_the_rank_of_the_job_is_no_device(
    tmp_path: Path, nodes: int, device: str, expected: list[str]
) -> None:
    text = DDP.replace('device = int(os.environ["LOCAL_RANK"])', f"device = {device}")

    assert rules(job(tmp_path, text, nodes=nodes)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model.cuda()", ["script-device-unset"]),
        ('model.to("cuda")', ["script-device-unset"]),
        ("model.to(device)", []),
    ],
)
def test_ranks_that_share_the_default_device_are_found(
    tmp_path: Path, line: str, expected: list[str]
) -> None:
    assert rules(job(tmp_path, GROUP.format(line=line))) == expected


@pytest.mark.parametrize(
    ("argument", "launch", "expected"),
    [
        ("--local_rank", "torchrun train.py", ["script-local-rank-argument"]),
        ("--local-rank", "torchrun train.py", ["script-local-rank-argument"]),
        ("--rank", "torchrun train.py", []),
        ("--local-rank", "python -m torch.distributed.launch train.py", ["torchrun-old-launcher"]),
        (
            "--local_rank",
            "python -m torch.distributed.launch train.py",
            ["script-local-rank-spelling", "torchrun-old-launcher"],
        ),
        ("--local_rank", "python -m torch.distributed.launch --use_env train.py", ["torchrun-old-launcher"]),
    ],
)
def test_the_local_rank_is_no_argument_of_torchrun(
    tmp_path: Path, argument: str, launch: str, expected: list[str]
) -> None:
    assert rules(job(tmp_path, ARGUMENT.format(argument=argument), launch)) == expected


def test_copies_of_one_process_are_found(tmp_path: Path) -> None:
    assert rules(job(tmp_path, HEAD + "model = torch.nn.DataParallel(model)\n")) == ["script-data-parallel"]
    assert rules(job(tmp_path, HEAD + "model = mine.DataParallel(model)\n")) == []
