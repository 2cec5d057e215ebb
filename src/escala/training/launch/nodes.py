"""What to run on several nodes: lines for torchrun, or a script for Slurm. Text; runs sbatch where asked."""

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from escala.errors import InvalidInput, one_line
from escala.foreign.slurm import writing as slurm

PORT: Final = 29_400
"""Where torchrun's nodes meet by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How many nodes, ranks in each, the first node's host, and how often lost ranks are started again."""

    nodes: int
    local_ranks: int
    host: str = "FIRST_HOST"
    restarts: int = 3
    name: str = "escala"
    has_gpus: bool = True


def nodes_of(devices: int, local_ranks: int, *, has_gpus: bool = True) -> Nodes:
    """Nodes of so many devices each that hold all devices of a plan."""
    if local_ranks < 1 or devices % local_ranks:
        raise InvalidInput(f"{devices} devices are not nodes of {local_ranks}; choose a divisor of {devices}")
    return Nodes(nodes=devices // local_ranks, local_ranks=local_ranks, has_gpus=has_gpus)


def torchrun_line(nodes: Nodes, command: Sequence[str]) -> str:
    """What to run on every node, the same everywhere."""
    return _torchrun(nodes, f"{nodes.host}:{PORT}", command)


def sbatch_script(nodes: Nodes, command: Sequence[str], *, time: str = "24:00:00") -> str:
    """A job of Slurm in which every node runs torchrun once."""
    own = ("#SBATCH --exclusive", f"#SBATCH --time={time}", slurm.WARNED, slurm.AGAIN)
    asked = slurm.asked(nodes.name, nodes.nodes, nodes.local_ranks if nodes.has_gpus else 0)
    line = _torchrun(nodes, f'"{slurm.FIRST_HOST}:{PORT}"', command, is_quoted=True)
    return "\n".join(("#!/bin/bash", *asked, *own, "", f"{slurm.START} {line}", ""))


def submit(script: str) -> str:
    """Hand a script to sbatch; what sbatch says comes back."""
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise InvalidInput("there is no sbatch here; write the script to a file and submit it where Slurm is")
    done = subprocess.run([sbatch], input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        said = one_line(done.stderr.strip() or f"code {done.returncode}", 200)
        raise InvalidInput(f"sbatch refused the script ({said}); mend a copy of it and submit that")
    return done.stdout.strip()


def _torchrun(nodes: Nodes, meeting: str, command: Sequence[str], *, is_quoted: bool = False) -> str:
    return " ".join(
        (
            "torchrun",
            f"--nnodes={nodes.nodes}",
            f"--nproc-per-node={nodes.local_ranks}",
            f"--max-restarts={nodes.restarts}",
            "--rdzv-backend=c10d",
            f"--rdzv-id={nodes.name}",
            f"--rdzv-endpoint={meeting if is_quoted else shlex.quote(meeting)}",
            shlex.join(command),
        )
    )
