"""Which rank this process is, and who started it. Reads environment variables only; starts nothing.

PyTorch's own variables win (torchrun, Kubernetes' PyTorchJob), then mpirun's, then those of srun. A process
that nobody started as one of several is alone: `escala.training.launch.start` then starts ranks here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from escala.errors import InvalidInput
from escala.training.launch.slurm import first_host, tasks_of_node

HERE: Final = "127.0.0.1"
PORTS: Final = range(15_000, 30_000)
"""Where ranks meet that have no launcher to name a port: below those that systems give out by themselves."""


class Launcher(StrEnum):
    """Who started this process."""

    NONE = "nobody"
    TORCHRUN = "torchrun"
    KUBERNETES = "Kubernetes"
    SLURM = "srun"
    MPI = "mpirun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This process among all ranks, and where rank 0 is met; alone it is rank 0 of 1."""

    launcher: Launcher = Launcher.NONE
    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1
    node: int = 0
    nodes: int = 1
    address: str = HERE
    port: int = PORTS.start
    restarts: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """The variables that torch.distributed reads, whoever started the process."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_ranks),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


def place_of(environment: Mapping[str, str]) -> Place:
    """The place that the environment gives this process; alone where it was started as the only one.

    One rank under torchrun is a rank all the same, which is met where torchrun says.
    """
    if "RANK" in environment or "WORLD_SIZE" in environment:
        place = _of_torch(environment)
    elif "OMPI_COMM_WORLD_RANK" in environment:
        place = _of_mpi(environment)
    elif "SLURM_STEP_ID" in environment:
        place = _of_slurm(environment)
    else:
        _refuse_batch_script(environment)
        return Place()
    is_one_of_several = place.ranks > 1 or place.launcher is Launcher.TORCHRUN
    return place if is_one_of_several else Place()


def refuse_other_size(place: Place, devices: int) -> None:
    """Refuse ranks that are not as many as the plan's devices; a process alone may start them itself."""
    if place.launcher is not Launcher.NONE and place.ranks != devices:
        raise InvalidInput(
            f"the plan is made for {devices} devices and {place.launcher} started {place.ranks} ranks; "
            f"start {devices}, or plan again with --gpus {place.ranks}"
        )


def _of_torch(environment: Mapping[str, str]) -> Place:
    rank, ranks = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    is_torchrun = "LOCAL_RANK" in environment
    if not is_torchrun and _number(environment, "PET_NPROC_PER_NODE", 1) > 1:
        raise InvalidInput(
            "this pod is to run several ranks and started one process; put torchrun before escala, "
            "which reads the PyTorchJob's variables"
        )
    local_ranks = _number(environment, "LOCAL_WORLD_SIZE", 1)
    return _checked(
        Place(
            launcher=Launcher.TORCHRUN if is_torchrun else Launcher.KUBERNETES,
            rank=rank,
            ranks=ranks,
            local_rank=_number(environment, "LOCAL_RANK", 0),
            local_ranks=local_ranks,
            node=_number(environment, "GROUP_RANK", rank // local_ranks),
            nodes=_number(environment, "GROUP_WORLD_SIZE", -(-ranks // local_ranks)),
            address=environment.get("MASTER_ADDR", HERE),
            port=_number(environment, "MASTER_PORT", PORTS.start),
            restarts=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
        )
    )


def _of_mpi(environment: Mapping[str, str]) -> Place:
    ranks = _number(environment, "OMPI_COMM_WORLD_SIZE")
    local_ranks = _number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", ranks)
    rank = _number(environment, "OMPI_COMM_WORLD_RANK")
    if ranks != local_ranks and "MASTER_ADDR" not in environment:
        raise InvalidInput(
            "mpirun started ranks on several nodes and does not say where rank 0 is; "
            "give its host: mpirun -x MASTER_ADDR=HOST"
        )
    if ranks % local_ranks:
        raise InvalidInput(f"{ranks} ranks are not nodes of {local_ranks}; start as many in every node")
    return _checked(
        Place(
            launcher=Launcher.MPI,
            rank=rank,
            ranks=ranks,
            local_rank=_number(environment, "OMPI_COMM_WORLD_LOCAL_RANK", rank),
            local_ranks=local_ranks,
            node=rank // local_ranks,
            nodes=ranks // local_ranks,
            address=environment.get("MASTER_ADDR", HERE),
            port=_number(environment, "MASTER_PORT", PORTS.start),
        )
    )


def _of_slurm(environment: Mapping[str, str]) -> Place:
    ranks = _number(environment, "SLURM_STEP_NUM_TASKS", _number(environment, "SLURM_NTASKS", 1))
    nodes = _number(environment, "SLURM_STEP_NUM_NODES", _number(environment, "SLURM_NNODES", 1))
    node = _number(environment, "SLURM_NODEID", 0)
    per_node = environment.get(
        "SLURM_STEP_TASKS_PER_NODE", environment.get("SLURM_TASKS_PER_NODE", str(ranks))
    )
    hosts = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST", HERE))
    step = _number(environment, "SLURM_JOB_ID", 0) + _number(environment, "SLURM_STEP_ID", 0)
    return _checked(
        Place(
            launcher=Launcher.SLURM,
            rank=_number(environment, "SLURM_PROCID", 0),
            ranks=ranks,
            local_rank=_number(environment, "SLURM_LOCALID", 0),
            local_ranks=tasks_of_node(per_node, node),
            node=node,
            nodes=nodes,
            address=environment.get("MASTER_ADDR", first_host(hosts)),
            port=_number(environment, "MASTER_PORT", PORTS[step % len(PORTS)]),
            restarts=_number(environment, "SLURM_RESTART_COUNT", 0),
        )
    )


def _refuse_batch_script(environment: Mapping[str, str]) -> None:
    """A batch script runs once, on the first node: on several nodes srun has to start the others."""
    if "SLURM_JOB_ID" in environment and _number(environment, "SLURM_NNODES", 1) > 1:
        raise InvalidInput(
            f"this batch script runs on one of {environment['SLURM_NNODES']} nodes; put srun before escala, "
            "or let `escala train --nodes` write the script"
        )


def _checked(place: Place) -> Place:
    if not 0 <= place.rank < place.ranks or not 0 <= place.local_rank < place.local_ranks <= place.ranks:
        raise InvalidInput(
            f"{place.launcher}'s variables contradict each other: rank {place.rank} of {place.ranks}, "
            f"{place.local_rank} of {place.local_ranks} in its node; start in a fresh shell"
        )
    return place


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None:
        if default is None:
            raise InvalidInput(
                f"{name} is not set beside the other variables of a rank; start in a fresh shell"
            )
        return default
    if not text.isdecimal():
        raise InvalidInput(f"{name}={text} is no whole number; unset it, or start in a fresh shell")
    return int(text)
