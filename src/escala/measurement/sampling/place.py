"""Where a process runs: the name of the node, and its rank in a launch. Knows the variables of launchers."""

import os
import socket
from collections.abc import Mapping
from typing import Final

RANKS: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZES: Final = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""torchrun; srun; mpirun of Open MPI; mpiexec of MPICH. Source: their manuals."""


def node(environment: Mapping[str, str] = os.environ) -> str:
    """The node as Slurm calls it, else the name of the host."""
    return environment.get("SLURMD_NODENAME") or socket.gethostname()


def rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """The rank that a launcher gave this process."""
    return _first(RANKS, environment)


def ranks(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes the launcher started; 1 without one."""
    return _first(SIZES, environment) or 1


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    found = (environment[name] for name in names if environment.get(name, "").isdigit())
    return next(map(int, found), None)
