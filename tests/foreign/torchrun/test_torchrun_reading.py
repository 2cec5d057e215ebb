"""torchrun's lines: their facts, and each rule with a line that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.jobs import Job, read_job

C10D = "--rdzv-backend=c10d --rdzv-endpoint=node0:29500"


def job(folder: Path, text: str, **files: str) -> Job:
    (folder / "run.sh").write_text(text)
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    paths = [folder / "run.sh", *(folder / f"{name}.py" for name in files)]
    return read_job([str(path) for path in paths], {}, {})


def facts(found: Job) -> dict[str, object]:
    return {name: each.value for name, each in found.facts.items()}


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun train.py", {"nodes": 1, "devices_per_node": 1, "devices": 1}),
        ("torchrun --standalone --nproc_per_node 4 t.py", {"nodes": 1, "devices_per_node": 4, "devices": 4}),
        (
            f"torchrun --nnodes=4 --nproc-per-node=8 {C10D} t.py --nnodes 9",
            {"nodes": 4, "devices_per_node": 8, "devices": 32},
        ),
        (
            f"python3 -m torch.distributed.run --nnode 2:2 --nproc-per 8 {C10D} -m pack.train",
            {"nodes": 2, "devices_per_node": 8, "devices": 16},
        ),
        (
            "N=8\nGPUS=$((N / 2))\nsrun torchrun --nproc-per-node=$GPUS t.py",
            {"nodes": 1, "devices_per_node": 4, "devices": 4},
        ),
        (
            "srun bash -c 'torchrun --nproc-per-node=2 t.py'",
            {"nodes": 1, "devices_per_node": 2, "devices": 2},
        ),
        ("PET_NPROC_PER_NODE=6 torchrun t.py", {"nodes": 1, "devices_per_node": 6, "devices": 6}),
        ("torchrun --nproc-per-node=gpu t.py", {"nodes": 1}),
        ("torchrun --nproc-per-node=$UNSET t.py", {"nodes": 1}),
        # two jobs of one script: only what both say
        ("torchrun --nproc-per-node=2 a.py\ntorchrun --nproc-per-node=4 b.py", {"nodes": 1}),
    ],
)
def test_facts_are_nodes_and_processes(tmp_path: Path, line: str, expected: dict[str, object]) -> None:
    assert facts(job(tmp_path, line)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python -m torch.distributed.launch --nproc_per_node=4 t.py", ["torchrun-old-launcher"]),
        ("python -m torch.distributed.launch --use_env t.py", ["torchrun-old-launcher"]),
        ("torchrun --use_env t.py", ["removed-key"]),
        ("python -m torch.distributed.run --nproc_per_node=4 t.py", []),
        ("torchrun --nproc-per-nod 4 t.py", []),  # a unique beginning is enough for torchrun
        ("torchrun --nproc 4 t.py", ["unknown-key"]),  # two spellings begin so
        ("torchrun --nproc-per-mode 4 t.py", ["misspelt-key"]),
        ("torchrun --devices 4 t.py", ["unknown-key"]),
        ("torchrun --max-restarts many t.py", ["wrong-type"]),
        ("torchrun --max-restarts 3 --monitor-interval 1 t.py", []),
        ("torchrun --start-method spwan t.py", ["wrong-value"]),
        ("torchrun --nproc-per-node all t.py", ["torchrun-processes"]),
        ("torchrun --nproc-per-node auto t.py", []),
        ("torchrun --nnodes two t.py", ["torchrun-nodes"]),
        (f"torchrun --nnodes 1:4 {C10D} t.py", ["torchrun-elastic"]),
        ("torchrun --standalone --nnodes 2 t.py", ["torchrun-standalone-nodes"]),
        ("torchrun --standalone --nnodes 1 t.py", []),
        ("torchrun --nnodes 2 --rdzv-backend c10d t.py", ["torchrun-endpoint-missing"]),
        ("torchrun --nnodes 2 --node-rank $R t.py", ["torchrun-endpoint-missing"]),
        ("torchrun --nnodes 2 --node-rank $R --master-addr $A t.py", []),
        (f"torchrun --nnodes 2 {C10D} t.py", []),
        (
            "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint localhost:29500 t.py",
            ["torchrun-endpoint-local"],
        ),
        ("torchrun --rdzv-backend c10d --rdzv-endpoint localhost:29500 t.py", []),
        ("torchrun --nnodes 2 --master-addr node0 t.py", ["torchrun-node-rank-missing"]),
        (f"torchrun --nnodes 2 {C10D} --node-rank 1 t.py", ["torchrun-node-rank-ignored"]),
        ("torchrun --nproc-per-node 4", ["torchrun-script-missing"]),
        ("torchrun --nproc-per-node 4 python t.py", ["torchrun-python-word"]),
        ("torchrun --no-python python t.py", []),
    ],
)
def test_each_fault_of_a_command_line_is_found(tmp_path: Path, line: str, expected: list[str]) -> None:
    assert rules(job(tmp_path, line)) == expected


def test_the_change_for_the_old_launcher_writes_torchrun(tmp_path: Path) -> None:
    text = "export A=1\npython -m torch.distributed.launch --use_env --nproc_per_node=4 t.py\n"

    [found] = job(tmp_path, text).findings

    for edit in sorted(found.edits, key=lambda edit: -edit.start):
        text = text[: edit.start] + edit.text + text[edit.end :]
    assert text == "export A=1\ntorchrun  --nproc_per_node=4 t.py\n"


def test_a_script_of_another_name_is_found(tmp_path: Path) -> None:
    found = job(tmp_path, "torchrun train.py", training="import torch\nfrom torch import nn\n")

    assert rules(found) == ["torchrun-other-script"]


def test_a_script_that_lies_there_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")

    found = job(tmp_path, "torchrun train.py")

    assert rules(found) == []


def test_nodes_that_srun_starts_alone_are_found(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("srun torchrun --nproc-per-node=8 t.py")

    found = read_job([str(tmp_path / "run.sh")], {"nodes": 4}, {})

    assert "torchrun-nodes-unsaid" in rules(found)
