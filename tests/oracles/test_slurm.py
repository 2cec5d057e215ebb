"""Slurm itself as judge: its options, what a cluster of 16 nodes of 8 H100 takes and refuses."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from escala.foreign.keys import table
from escala.foreign.slurm import writing
from escala.foreign.slurm.directives import SHORT
from foreign.plans import ORDERS
from foreign.round import written
from oracles import slurm_keys
from oracles.needed import shellcheck
from oracles.slurm_cluster import cluster, root, run

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root()
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def test_the_table_of_options_is_what_sbatch_knows() -> None:
    assert slurm_keys.table() == table("slurm")


def test_short_options_are_those_of_the_help(conf: Path) -> None:
    said = re.findall(r"-(\w), --([a-z-]+)", run("sbatch", "--help", conf=conf).stdout)

    assert dict(said).items() <= SHORT.items()


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (["--nodes=16", "--gpus-per-node=8"], ""),
        (["--nodes=16", "--gres=gpu:h100:8"], ""),
        (["--nodes=17", "--gpus-per-node=8"], "not available"),
        (["--nodes=1", "--gpus-per-node=9"], "not available"),
        (["--nodes=1", "--gpu-per-node=8"], "unrecognized option"),
        (["--node=2"], "ambiguous"),
    ],
)
def test_the_scheduler_refuses_what_it_cannot_give(
    conf: Path, tmp_path: Path, lines: list[str], refused: str
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines) + "srun true\n")

    done = run("sbatch", "--test-only", str(script), conf=conf)

    assert (done.returncode == 0) == (refused == ""), done.stderr
    assert refused in done.stderr


def test_directives_after_the_first_command_are_passed_over(conf: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --nodes=1\ntrue\n#SBATCH --nodes=40\n")

    assert run("sbatch", "--test-only", str(script), conf=conf).returncode == 0


@pytest.mark.parametrize("plan", ORDERS)
def test_every_plan_starts_on_the_cluster_and_its_script_is_clean(
    conf: Path, tmp_path: Path, plan: str
) -> None:
    order = replace(ORDERS[plan], launch="torchrun --node-rank=$NODE_RANK it\\'s.py")
    [path] = written(writing, order, tmp_path)

    done = run("sbatch", "--test-only", path, conf=conf)

    assert done.returncode == 0, done.stderr
    assert f"using {CPUS[order.devices_per_node] * order.nodes} processors" in done.stderr
    checked = subprocess.run([shellcheck("slurm"), path], capture_output=True, text=True, check=False)
    assert checked.stdout == ""


CPUS = {1: 8, 2: 16, 4: 32, 8: 128}
"""Cores of a node that a job of so many devices gets: eight for each, or all of a whole node."""
