"""SkyPilot's tasks: each rule with a task that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.jobs import Job, read_job

RUN = (
    "torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc-per-node=$SKYPILOT_NUM_GPUS_PER_NODE "
    '--node-rank=$SKYPILOT_NODE_RANK --master-addr=$(echo "$SKYPILOT_NODE_IPS" | head -n1) train.py'
)


def job(
    folder: Path, resources: str = "accelerators: H100:8", run: str = RUN, more: str = "", nodes: int = 2
) -> Job:
    tier = "" if "network_tier" in more else ", network_tier: best"
    text = f"num_nodes: {nodes}\nresources: {{{resources}{tier}}}\n{more}run: |\n  {run}\n"
    (folder / "task.yaml").write_text(text)
    return read_job([str(folder / "task.yaml")], {}, {})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


def test_a_task_is_read_with_the_variables_of_its_nodes(tmp_path: Path) -> None:
    found = job(tmp_path)

    assert {name: each.value for name, each in found.facts.items()} == {
        "nodes": 2,
        "devices_per_node": 8,
        "devices": 16,
        "device": "H100",
    }
    assert rules(found) == []


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("accelerators: H100:8, use_spots: true", ["misspelt-key"]),
        ("accelerators: H100:8, region: us-east-1", ["deprecated-key"]),
        ("accelerators: H100:8, infra: aws/us-east-1", []),
        ("accelerators: {H100: 8}", []),
        ("any_of: [{accelerators: H100:8}, {accelerators: A100:8}]", []),
        ("any_of: [{accelerator: H100:8}]", ["misspelt-key"]),
    ],
)
def test_keys_of_resources(tmp_path: Path, resources: str, expected: list[str]) -> None:
    assert rules(job(tmp_path, resources)) == expected


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("torchrun --nproc-per-node=8 train.py", ["skypilot-nodes-apart"]),
        ("python train.py", ["skypilot-nodes-unasked"]),
        ("RANK=$SKYPILOT_NODE_RANK python train.py", []),
        (RUN.replace("$SKYPILOT_NUM_GPUS_PER_NODE", "16"), ["skypilot-too-few-gpus"]),
        (RUN.replace("$SKYPILOT_NUM_GPUS_PER_NODE", "4"), ["skypilot-idle-gpus"]),
    ],
)
def test_nodes_and_devices_that_are_used(tmp_path: Path, run: str, expected: list[str]) -> None:
    assert rules(job(tmp_path, run=run)) == expected


def test_the_fast_network_is_asked_for(tmp_path: Path) -> None:
    text = f"num_nodes: 2\nresources: {{accelerators: H100:8}}\nrun: |\n  {RUN}\n"
    (tmp_path / "task.yaml").write_text(text)

    assert rules(read_job([str(tmp_path / "task.yaml")], {}, {})) == ["skypilot-network-tier"]


@pytest.mark.parametrize(
    ("more", "run", "expected"),
    [
        ("", RUN, ["skypilot-spot-forgets"]),
        ("file_mounts: {/ckpt: {name: my-bucket, mode: MOUNT}}\n", RUN + " --resume /ckpt", []),
    ],
)
def test_spot_machines_keep_checkpoints_elsewhere(
    tmp_path: Path, more: str, run: str, expected: list[str]
) -> None:
    assert rules(job(tmp_path, "accelerators: H100:8, use_spot: true", run, more)) == expected


def test_a_variable_without_value_is_noted(tmp_path: Path) -> None:
    assert rules(job(tmp_path, more="envs: {HF_TOKEN: null, WANDB_MODE: offline}\n")) == [
        "skypilot-variable-open"
    ]
