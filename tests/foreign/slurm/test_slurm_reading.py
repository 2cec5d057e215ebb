"""Batch scripts: each rule with a script that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.jobs import Job, read_job

TORCHRUN = (
    "torchrun --nnodes={nodes} --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29400 train.py"
)
GOOD = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=h100:8", "--cpus-per-task=96", "--mem=0")
SRUN = "srun --kill-on-bad-exit=1 --cpus-per-task=96 "


def job(folder: Path, options: tuple[str, ...], *commands: str, **files: str) -> Job:
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), *commands]
    (folder / "job.sbatch").write_text("\n".join(lines) + "\n")
    paths = [str(folder / "job.sbatch")]
    for name, text in files.items():
        (folder / f"{name}.json").write_text(text)
        paths.append(str(folder / f"{name}.json"))
    return read_job(paths, {}, {})


def rules(found: Job, *wanted: str) -> list[tuple[str, int]]:
    """The findings of batch scripts and their lines, or those of the rules that are named."""
    return [
        (each.rule, each.place.line)
        for each in found.findings
        if each.place and (each.rule in wanted if wanted else each.rule.startswith("slurm"))
    ]


def run(nodes: int = 2) -> str:
    return TORCHRUN.format(nodes=nodes)


def test_what_is_granted_is_said_in_the_words_of_the_field(tmp_path: Path) -> None:
    found = job(tmp_path, ("-N 4 --gres=gpu:a100:8,nvme:1 # four", "--mem=512G"), "srun python train.py")

    assert {name: each.value for name, each in found.facts.items()} == {
        "nodes": 4,
        "devices_per_node": 8,
        "device": "a100",
        "devices": 32,
        "host_bytes": 512 * 2**30,
    }


def test_the_launcher_in_the_script_is_read_with_the_variables_of_slurm(tmp_path: Path) -> None:
    options = ("--nodes=2", "--gpus-per-node=4")

    found = job(
        tmp_path,
        options,
        "srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=$SLURM_GPUS_ON_NODE train.py",
    )

    assert (found.value("nodes"), found.value("devices_per_node"), found.value("devices")) == (2, 4, 8)
    assert [each.tool for each in found.readings][-1] == "slurm"


def test_a_sound_script_has_no_finding(tmp_path: Path) -> None:
    assert rules(job(tmp_path, GOOD, "HEAD=$(scontrol show hostnames | head -n 1)", SRUN + run())) == []


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--gpus-per-nod=8", []),  # getopt takes the only option that begins so
        ("--gpu-per-node=8", [("misspelt-key", 2)]),
        ("--frobnicate", [("unknown-key", 2)]),
        ("--segment=4", []),  # of a later release
    ],
)
def test_options_that_sbatch_does_not_know(
    tmp_path: Path, option: str, expected: list[tuple[str, int]]
) -> None:
    found = job(tmp_path, (option, "--nodes=1"), "true")

    assert rules(found, "misspelt-key", "unknown-key") == expected


def test_directives_after_the_first_command_or_with_a_blank_are_not_heard(tmp_path: Path) -> None:
    found = job(tmp_path, ("--nodes=1",), "# SBATCH --exclusive", "##SBATCH --mem=0", "true", "#SBATCH -N 4")

    assert rules(found) == [("slurm-late-directive", 6), ("slurm-spaced-directive", 3)]
    assert found.value("nodes") == 1


@pytest.mark.parametrize(("tasks", "expected"), [("8", [("slurm-torchrun-for-each-task", 3)]), ("1", [])])
def test_torchrun_is_started_once_a_node(tmp_path: Path, tasks: str, expected: list[tuple[str, int]]) -> None:
    options = ("--nodes=2", f"--ntasks-per-node={tasks}", "--gpus-per-node=8", "--exclusive")

    assert rules(job(tmp_path, options, "srun -K " + run())) == expected


def test_torchrun_without_srun_starts_on_one_node(tmp_path: Path) -> None:
    options = ("--nodes=2", "--gpus-per-node=8")

    assert rules(job(tmp_path, options, run())) == [("slurm-one-node-starts", 4)]
    assert rules(job(tmp_path, ("--nodes=1", "--gpus-per-node=8"), run(1))) == []


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ("--gpus-per-node=4", "slurm-too-few-gpus"),
        ("--gpus-per-node=8", None),
        ("--gres=gpu:16", "slurm-idle-gpus"),
        ("--gpus=8", "slurm-total-gpus"),
        ("--gpus=16", None),
        ("--comment=none", "slurm-no-gpus"),
        ("--exclusive", None),
    ],
)
def test_gpus_that_are_granted_against_those_that_are_used(
    tmp_path: Path, gpus: str, expected: str | None
) -> None:
    options = ("--nodes=2", gpus, "--cpus-per-task=96")

    assert [name for name, _ in rules(job(tmp_path, options, SRUN + run()))] == (
        [expected] if expected else []
    )


@pytest.mark.parametrize(
    ("launched", "expected"),
    [(2, []), (4, ["slurm-fewer-nodes-than-launched"]), (1, ["slurm-nodes-apart"])],
)
def test_nodes_that_are_granted_against_those_that_are_launched(
    tmp_path: Path, launched: int, expected: list[str]
) -> None:
    assert [name for name, _ in rules(job(tmp_path, GOOD, SRUN + run(launched)))] == expected


@pytest.mark.parametrize(("tasks", "expected"), [("1", [("slurm-one-process-for-many-gpus", 5)]), ("8", [])])
def test_python_under_srun_needs_a_task_for_each_gpu(
    tmp_path: Path, tasks: str, expected: list[tuple[str, int]]
) -> None:
    options = ("--nodes=2", f"--ntasks-per-node={tasks}", "--gpus-per-node=8")

    assert rules(job(tmp_path, options, "srun python train.py")) == expected


def test_cores_of_a_task_are_asked_for_and_handed_on(tmp_path: Path) -> None:
    few, one = ("--nodes=1", "--gpus-per-node=8", "--cpus-per-task=4"), ("--nodes=1", "--gpus-per-node=8")

    assert rules(job(tmp_path, one, "srun " + run(1))) == [("slurm-few-cores", 4)]
    assert rules(job(tmp_path, few, "srun " + run(1))) == [
        ("slurm-cores-not-inherited", 4),
        ("slurm-few-cores", 4),
    ]
    many = (*one, "--cpus-per-task=64")
    assert rules(job(tmp_path, many, "export SRUN_CPUS_PER_TASK=64", "srun " + run(1))) == []


@pytest.mark.parametrize(
    ("memory", "expected"), [("--mem=0", []), ("--comment=x", [("slurm-default-memory", 1)])]
)
def test_offload_needs_memory_that_is_asked_for(
    tmp_path: Path, memory: str, expected: list[tuple[str, int]]
) -> None:
    zero = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'

    assert rules(job(tmp_path, ("--nodes=1", memory), "srun true", ds=zero)) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost", ["slurm-master-is-local"]),
        ('$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n 1)', ["slurm-master-is-last"]),
        ('$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', []),
    ],
)
def test_nodes_meet_on_the_first_host(tmp_path: Path, address: str, expected: list[str]) -> None:
    found = job(tmp_path, GOOD, f"export MASTER_ADDR={address}", SRUN + run())

    assert [name for name, _ in rules(found)] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SLURM_NODEID t.py",
            "slurm-rank-expanded-early",
        ),
        ("bash -c 'torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SLURM_NODEID t.py'", None),
        ('bash -c "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=\\$SLURM_NODEID t.py"', None),
        (
            "bash -c 'torchrun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=$(hostname):29400 t.py'",
            "slurm-master-in-each-task",
        ),
    ],
)
def test_what_each_node_fills_in_and_what_the_first_one_does(
    tmp_path: Path, line: str, expected: str | None
) -> None:
    found = [name for name, _ in rules(job(tmp_path, GOOD, SRUN + line))]

    assert found == ([expected] if expected else [])


def test_a_fixed_port_is_noted_where_nodes_are_shared(tmp_path: Path) -> None:
    assert rules(job(tmp_path, GOOD, "MASTER_PORT=29500")) == [("slurm-fixed-port", 7)]
    assert rules(job(tmp_path, (*GOOD, "--exclusive"), "MASTER_PORT=29500")) == []
    assert rules(job(tmp_path, GOOD, "MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))")) == []


@pytest.mark.parametrize(
    ("signal", "before", "expected"),
    [
        ("B:USR1@300", "true", ["slurm-signal-unheard"]),
        ("B:USR1@300", "trap 'kill -TERM $child' USR1", []),
        ("USR1@300", "true", ["slurm-signal-kills-torchrun"]),
        ("TERM@120", "true", []),
    ],
)
def test_a_signal_before_the_end_reaches_somebody_who_listens(
    tmp_path: Path, signal: str, before: str, expected: list[str]
) -> None:
    found = job(tmp_path, (*GOOD, f"--signal={signal}"), before, SRUN + run())

    assert [name for name, _ in rules(found)] == expected


@pytest.mark.parametrize(("more", "expected"), [("", ["slurm-requeue-from-start"]), (" --resume latest", [])])
def test_a_second_start_resumes(tmp_path: Path, more: str, expected: list[str]) -> None:
    found = job(tmp_path, (*GOOD, "--requeue"), SRUN + run() + more)

    assert [name for name, _ in rules(found)] == expected


def test_one_failed_node_ends_the_others(tmp_path: Path) -> None:
    line = "srun --cpus-per-task=96 " + run()

    assert rules(job(tmp_path, GOOD, line)) == [("slurm-survivors-wait", 7)]


def test_torchrun_that_says_no_nodes_leaves_them_apart_and_sockets_matter_still(tmp_path: Path) -> None:
    found = job(tmp_path, GOOD, "export NCCL_IB_DISABLE=1", SRUN + "torchrun --nproc-per-node=8 train.py")

    assert [each.rule for each in found.findings] == ["slurm-nodes-apart", "nccl-sockets"]


def test_trainings_of_one_node_may_share_a_job(tmp_path: Path) -> None:
    line = SRUN + "--nodes=1 --ntasks=1 torchrun --standalone --nproc-per-node=8 sweep.py &"

    assert rules(job(tmp_path, GOOD, line, line, "wait")) == []
