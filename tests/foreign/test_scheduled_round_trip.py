"""Schedulers' files: nodes and devices come back, another target's line runs, nothing is found wrong."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from escala.foreign.jobs import read_job
from escala.foreign.kubernetes import writing_jobset, writing_trainjob
from escala.foreign.orders import Order, Writer, lacking
from escala.foreign.skypilot import writing as skypilot
from escala.foreign.slurm import writing as slurm
from foreign.plans import ORDERS
from foreign.round import written

WRITERS = {each.TARGET.name: each for each in (slurm, writing_trainjob, writing_jobset, skypilot)}
MAIN = {
    "slurm": "job.sbatch",
    "kubernetes-trainjob": "trainjob.yaml",
    "kubernetes-jobset": "jobset.yaml",
    "skypilot": "task.yaml",
}
LINE = (
    "torchrun --nnodes={nodes} --nproc-per-node={each} --node-rank=$NODE_RANK "
    "--master-addr=$MASTER_ADDR --master-port=$MASTER_PORT -m mine.train it\\'s.txt"
)


def wrapped(order: Order) -> Order:
    return replace(order, launch=LINE.format(nodes=order.nodes, each=order.devices_per_node))


@pytest.mark.parametrize("target", WRITERS)
@pytest.mark.parametrize("plan", ORDERS)
def test_nodes_and_devices_come_back_without_any_warning(target: str, plan: str, tmp_path: Path) -> None:
    writer: Writer = WRITERS[target]
    order = wrapped(ORDERS[plan])

    assert lacking(writer.TARGET, replace(order, plan=ORDERS["single-device"].plan)) == []
    job = read_job([path for path in written(writer, order, tmp_path) if path.endswith(MAIN[target])], {}, {})

    assert (job.value("nodes") or 1) == order.nodes
    assert job.value("devices_per_node") == order.devices_per_node
    assert job.value("devices") == order.plan.devices
    assert [(each.rule, each.what) for each in job.findings] == []


@pytest.mark.parametrize("target", WRITERS)
def test_without_a_line_escalas_own_script_lies_beside_it(target: str, tmp_path: Path) -> None:
    order = ORDERS["hsdp"]

    paths = written(WRITERS[target], order, tmp_path)

    assert "launch.sh" in [Path(path).name for path in paths]
    assert "bash launch.sh" in (tmp_path / MAIN[target]).read_text()
    job = read_job([str(tmp_path / MAIN[target])], {}, {})  # the script that it names is read too
    assert "launch.sh" in [Path(each.document.file).name for each in job.readings]
    assert job.findings == ()
    assert "launch.sh" not in [each.name for each in WRITERS[target].write(wrapped(order))]


def test_slurm_hands_the_line_to_each_task_with_its_number(tmp_path: Path) -> None:
    order = replace(ORDERS["hsdp"], launch='printf \'%s \' $NODE_RANK "it\'s" "$MASTER_PORT"')
    [path] = written(slurm, order, tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, body in (("srun", 'shift; SLURM_NODEID=1 exec "$@"'), ("scontrol", "echo n1; echo n2")):
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)

    done = subprocess.run(
        ["bash", path],
        env={"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_ID": "7"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "1 it's 10007 "


def test_manifests_are_yaml_with_scripts_as_blocks(tmp_path: Path) -> None:
    for path in written(writing_jobset, ORDERS["hsdp"], tmp_path):
        if path.endswith(".yaml"):
            text = Path(path).read_text()
            assert "- |\n" in text
            assert yaml.safe_load(text)["spec"]["suspend"] is True


def test_devices_that_a_scheduler_cannot_name_are_refused() -> None:
    order = ORDERS["ddp"]
    device = replace(order.problem.accelerator, name="x1", vendor="X")
    groups = tuple(replace(each, accelerator=device) for each in order.problem.cluster.groups)
    cluster = replace(order.problem.cluster, groups=groups)
    other = replace(order, problem=replace(order.problem, cluster=cluster))

    assert lacking(skypilot.TARGET, other) == ["x1: SkyPilot's catalogue has no such name that escala knows"]
    assert lacking(writing_jobset.TARGET, other) == ["devices of X: it asks for nvidia.com/gpu, amd.com/gpu"]
    assert lacking(slurm.TARGET, other) == []
