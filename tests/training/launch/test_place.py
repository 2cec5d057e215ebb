"""A process knows its place from what its launcher set, and refuses what does not fit together."""

import pytest

from escala.errors import InvalidInput
from escala.training.launch import Launcher, Place, place_of, refuse_other_size
from escala.training.launch.slurm import first_host, tasks_of_node

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "gpu1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
SRUN = {
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "13",
    "SLURM_STEP_NUM_TASKS": "20",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "5",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2),4",
    "SLURM_STEP_NODELIST": "gpu[03-04,07]",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "MASTER_ADDR": "gpu1",
}


def test_nobody_started_a_process_alone():
    assert place_of({}) == Place()


def test_torchrun_tells_everything():
    assert place_of(TORCHRUN) == Place(
        launcher=Launcher.TORCHRUN,
        rank=5,
        ranks=8,
        local_rank=1,
        local_ranks=4,
        node=1,
        nodes=2,
        address="gpu1",
        port=29500,
        restarts=2,
    )


def test_a_pytorch_job_starts_one_rank_in_each_pod():
    place = place_of({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"})

    assert (place.launcher, place.rank, place.ranks) == (Launcher.KUBERNETES, 1, 4)
    assert (place.local_rank, place.local_ranks, place.node, place.nodes) == (0, 1, 1, 4)


def test_srun_numbers_tasks_over_nodes():
    place = place_of(SRUN)

    assert (place.launcher, place.rank, place.ranks) == (Launcher.SLURM, 13, 20)
    assert (place.local_rank, place.local_ranks, place.node, place.nodes) == (5, 8, 1, 3)
    assert place.address == "gpu03"
    assert place.port == 15_000 + 123456 % 15_000


def test_mpirun_numbers_nodes_one_after_the_other():
    place = place_of(MPIRUN)

    assert (place.launcher, place.rank, place.local_rank) == (Launcher.MPI, 3, 1)
    assert (place.node, place.nodes, place.address) == (1, 2, "gpu1")


def test_torchrun_inside_srun_wins():
    assert place_of(SRUN | TORCHRUN).launcher is Launcher.TORCHRUN


def test_mpirun_inside_srun_wins():
    assert place_of(SRUN | MPIRUN).launcher is Launcher.MPI


def test_one_task_of_srun_is_alone():
    assert place_of({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1"}) == Place()


def test_one_rank_of_torchrun_is_met_where_torchrun_says():
    one = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": "29501"}

    place = place_of(one)

    assert (place.launcher, place.ranks, place.port) == (Launcher.TORCHRUN, 1, 29501)


def test_a_batch_script_on_one_node_is_alone():
    assert place_of({"SLURM_JOB_ID": "1", "SLURM_NNODES": "1"}) == Place()


def test_a_place_becomes_the_variables_of_torch():
    assert place_of(SRUN).environment == {
        "RANK": "13",
        "WORLD_SIZE": "20",
        "LOCAL_RANK": "5",
        "LOCAL_WORLD_SIZE": "8",
        "MASTER_ADDR": "gpu03",
        "MASTER_PORT": str(15_000 + 123456 % 15_000),
    }


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "1"}, "WORLD_SIZE is not set beside"),
        ({"WORLD_SIZE": "4"}, "RANK is not set beside"),
        (TORCHRUN | {"RANK": "x"}, "RANK=x is no whole number"),
        (TORCHRUN | {"RANK": "8"}, "contradict each other: rank 8 of 8"),
        (TORCHRUN | {"LOCAL_RANK": "4"}, "contradict each other"),
        (SRUN | {"SLURM_NODEID": "3"}, "node 3 has no tasks in '8.x2.,4'"),
        ({"SLURM_JOB_ID": "1", "SLURM_NNODES": "4"}, "one of 4 nodes; put srun before"),
        ({"RANK": "0", "WORLD_SIZE": "16", "PET_NPROC_PER_NODE": "8"}, "put torchrun before escala"),
        ({k: v for k, v in MPIRUN.items() if k != "MASTER_ADDR"}, "mpirun -x MASTER_ADDR=HOST"),
        (MPIRUN | {"OMPI_COMM_WORLD_SIZE": "5"}, "5 ranks are not nodes of 2"),
    ],
)
def test_a_wrong_mixture_is_refused(environment: dict[str, str], said: str):
    with pytest.raises(InvalidInput, match=said):
        place_of(environment)


def test_ranks_that_are_not_the_devices_of_the_plan_are_refused():
    with pytest.raises(
        InvalidInput, match=r"made for 4 devices and torchrun started 8 ranks; start 4, or plan"
    ):
        refuse_other_size(place_of(TORCHRUN), 4)


def test_a_process_alone_may_start_any_number():
    refuse_other_size(Place(), 4)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("gpu7", "gpu7"), ("a,b", "a"), ("gpu[03-07,12],cpu1", "gpu03"), ("r1-n[9,11]-ib", "r1-n9-ib")],
)
def test_the_first_host_of_a_list(hosts: str, first: str):
    assert first_host(hosts) == first


def test_tasks_of_nodes_are_counted():
    assert [tasks_of_node("8(x2),4", node) for node in range(3)] == [8, 8, 4]


def test_what_counts_no_tasks_is_refused():
    with pytest.raises(InvalidInput, match="'eight' counts no tasks"):
        tasks_of_node("eight", 0)
