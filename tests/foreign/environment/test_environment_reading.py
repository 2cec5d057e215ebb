"""Variables of NCCL and PyTorch: each rule with one that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.facts import Value
from escala.foreign.jobs import Job, read_job


def job(folder: Path, text: str, name: str = "run.sh", **given: Value) -> Job:
    (folder / name).write_text(text)
    return read_job([str(folder / name)], given, {})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("NCCL_IB_DISABLE=1", ["nccl-sockets"]),
        ("NCCL_IB_DISABLE=0", []),
        ("NCCL_NET=Socket", ["nccl-sockets"]),
        ("NCCL_NET=IB", []),
        ("NCCL_SOCKET_IFNAME=lo", ["interface-within-node"]),
        ("NCCL_SOCKET_IFNAME=docker0", ["interface-within-node"]),
        ("GLOO_SOCKET_IFNAME=lo", ["interface-within-node"]),
        ("NCCL_SOCKET_IFNAME=^lo,docker0", []),
        ("NCCL_SOCKET_IFNAME=eth0", []),
        ("NCCL_NET_GDR_LEVEL=LOC", ["nccl-no-gpu-direct"]),
        ("NCCL_NET_GDR_LEVEL=PHB", []),
        ("NCCL_P2P_DISABLE=1", ["nccl-no-peer-access"]),
        ("NCCL_P2P_LEVEL=LOC", ["nccl-no-peer-access"]),
        ("NCCL_P2P_LEVEL=NVL", []),
        ("NCCL_SHM_DISABLE=1", ["nccl-no-shared-memory"]),
        ("CUDA_LAUNCH_BLOCKING=1", ["cuda-launch-blocking"]),
        ("CUDA_LAUNCH_BLOCKING=0", []),
        ("NCCL_DEBUG=TRACE", ["nccl-debug-trace"]),
        ("NCCL_DEBUG=INFO", []),
        ("TORCH_DISTRIBUTED_DEBUG=DETAIL", ["torch-distributed-debug"]),
        ("TORCH_DISTRIBUTED_DEBUG=INFO", []),
        ("TORCH_NCCL_BLOCKING_WAIT=1", ["nccl-blocking-wait"]),
        ("TORCH_NCCL_BLOCKING_WAIT=0", []),
        ("NCCL_ALGO=Ring", ["nccl-tuning-fixed"]),
        ("NCCL_ASYNC_ERROR_HANDLING=1", ["variable-renamed"]),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING=1", []),
        ("PYTORCH_ALLOC_CONF=expandable_segments:True", []),
        ("TRANSFORMERS_CACHE=/data/hub", ["variable-not-heard"]),
        ("HF_HOME=/data", []),
    ],
)
def test_each_variable_that_costs_is_found(tmp_path: Path, setting: str, expected: list[str]) -> None:
    assert rules(job(tmp_path, f"export {setting}\n", nodes=2)) == expected


def test_what_is_forced_between_nodes_does_not_matter_on_one(tmp_path: Path) -> None:
    assert rules(job(tmp_path, "export NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo\n", nodes=1)) == []


def test_devices_without_peer_access_lose_nothing(tmp_path: Path) -> None:
    assert rules(job(tmp_path, "export NCCL_P2P_DISABLE=1\n", device="rtx-4090", nodes=1)) == []


def test_forced_paths_are_facts(tmp_path: Path) -> None:
    found = job(tmp_path, "NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 python train.py\n")

    assert (found.value("network"), found.value("link")) == ("tcp", "host-memory")
    both = job(tmp_path, "export NCCL_SHM_DISABLE=1\nNCCL_P2P_DISABLE=1 python train.py\n")
    assert both.value("link") == "tcp"


def test_python_that_sets_them_is_read_at_its_line(tmp_path: Path) -> None:
    text = 'import os\nos.environ["NCCL_IB_DISABLE"] = "1"\nos.environ.setdefault("NCCL_DEBUG", level)\n'

    [found] = job(tmp_path, text, "train.py").findings

    assert (found.rule, found.place and found.place.line) == ("nccl-sockets", 2)
    [edit] = found.edits
    assert text[: edit.start] + edit.text + text[edit.end :] == text.replace('"1"', '"0"')


def test_the_change_of_a_script_writes_the_value_alone(tmp_path: Path) -> None:
    text = "export CUDA_LAUNCH_BLOCKING=1\n"

    [found] = job(tmp_path, text).findings

    [edit] = found.edits
    assert text[: edit.start] + edit.text + text[edit.end :] == "export CUDA_LAUNCH_BLOCKING=0\n"


@pytest.mark.parametrize(("visible", "expected"), [("0,1,2", ["fewer-visible-devices"]), ("0,1,2,3", [])])
def test_processes_need_visible_devices(tmp_path: Path, visible: str, expected: list[str]) -> None:
    text = f"export CUDA_VISIBLE_DEVICES={visible}\ntorchrun --standalone --nproc-per-node=4 train.py\n"

    assert [each for each in rules(job(tmp_path, text)) if each == "fewer-visible-devices"] == expected


def test_devices_of_one_command_say_nothing_of_another(tmp_path: Path) -> None:
    text = "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --standalone --nproc-per-node=4 t.py\n"

    assert rules(job(tmp_path, text + "CUDA_VISIBLE_DEVICES=4 python evaluate.py\n")) == []
