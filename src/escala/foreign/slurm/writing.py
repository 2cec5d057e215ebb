"""A plan as a batch script of Slurm: nodes, GPUs, one task a node, and the line that starts ranks."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.orders import Order, OutFile, Target, header
from escala.foreign.scheduled import also, line_of, name_of, own_files, quoted
from escala.foreign.torchrun import writing

TARGET: Final = Target(
    name="slurm",
    title="Slurm",
    version="22.05",
    abilities=writing.TARGET.abilities,
    launch="sbatch job.sbatch",
    page="docs/targets/slurm.md",
    wraps=True,
    also=also,
)
FIRST_HOST: Final = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
"""The first node of a job. sed reads to the end: head would leave, and pipefail end the job by SIGPIPE."""
START: Final = "srun --kill-on-bad-exit=1"
WARNED: Final = "#SBATCH --signal=TERM@120"
AGAIN: Final = "#SBATCH --requeue"
CORES: Final = 8
"""Processor cores for each rank where a job takes a part of a node: an assumption, two loaders and some."""
WHOLE: Final = 8
"""Devices of a usual node; smaller jobs leave the rest of it to others."""


def write(order: Order) -> list[OutFile]:
    """The batch script, and the script that it starts on each node where no other line is given."""
    lines = ("#!/bin/bash", *_directives(order), header(TARGET, order).rstrip("\n"), *_body(order))
    return [OutFile(name="job.sbatch", text="\n".join(lines) + "\n"), *own_files(TARGET, order)]


def _directives(order: Order) -> Iterator[str]:
    """What the job asks for: whole nodes with all their memory, or a share of one."""
    yield from asked(name_of(order), order.nodes, order.devices_per_node)
    if _is_shared(order):
        yield f"#SBATCH --cpus-per-task={CORES * order.devices_per_node}"
    else:
        yield "#SBATCH --exclusive"
        yield "#SBATCH --mem=0"
    yield WARNED
    if not order.launch:
        yield "# a second start resumes from escala's last checkpoint"
        yield AGAIN
    yield "#SBATCH --output=%x-%j.out"
    yield "# --account, --partition and --time are yours to add; no plan knows them"


def asked(name: str, nodes: int, gpus: int) -> Iterator[str]:
    """Nodes with so many GPUs each, none where they have none, and one task on each."""
    yield f"#SBATCH --job-name={name}"
    yield f"#SBATCH --nodes={nodes}"
    yield "#SBATCH --ntasks-per-node=1"
    if gpus:
        yield f"#SBATCH --gpus-per-node={gpus}"


def _is_shared(order: Order) -> bool:
    """Whether the job leaves devices of its node to others."""
    return order.nodes == 1 and order.devices_per_node < WHOLE


def _body(order: Order) -> Iterator[str]:
    yield "set -euo pipefail"
    yield f"MASTER_ADDR={FIRST_HOST}"
    yield "MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))"
    yield "export MASTER_ADDR MASTER_PORT"
    cores = f" --cpus-per-task={CORES * order.devices_per_node}" if _is_shared(order) else ""
    task = quoted(f'export NODE_RANK="$SLURM_NODEID"; {line_of(order)}')
    yield "# the shell of each task fills in its own number"
    yield "# shellcheck disable=SC1003,SC2016"
    yield f"{START}{cores} bash -c {task}"
