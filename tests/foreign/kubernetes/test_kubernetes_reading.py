"""Manifests: each rule with a manifest that breaks it and one that nearly does."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from escala.foreign.findings import Severity
from escala.foreign.jobs import Job, read_job

TORCHRUN = ["torchrun", "train.py"]
MEMORY = {"name": "shm", "emptyDir": {"medium": "Memory"}}
MOUNT = {"name": "shm", "mountPath": "/dev/shm"}


def job(folder: Path, manifest: object) -> Job:
    text = manifest if isinstance(manifest, str) else yaml.safe_dump(manifest, sort_keys=False)
    (folder / "job.yaml").write_text(text)
    return read_job([str(folder / "job.yaml")], {}, {})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


def line(nodes: int) -> list[str]:
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=llama-node-0-0.llama:29400"]
    return ["torchrun", f"--nnodes={nodes}", "--nproc-per-node=8", *rendezvous, "train.py"]


def trainjob(**spec: Any) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": 8}}
    trainer: dict[str, Any] = {
        "numNodes": 2,
        "numProcPerNode": 8,
        "command": TORCHRUN,
        "resourcesPerNode": limits,
    }
    given = spec.pop("trainer", {})
    assert isinstance(given, dict)
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "llama"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {**trainer, **given}, **spec},
    }


def pod(
    gpus: int = 8, *, has_memory: bool = True, command: list[str] = TORCHRUN, **spec: Any
) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "pytorch",
        "image": "pytorch/pytorch",
        "command": command,
        "resources": {"limits": {"nvidia.com/gpu": gpus, "memory": "64Gi"}},
    }
    if has_memory:
        container["volumeMounts"] = [MOUNT]
    return {"spec": {"containers": [container], "volumes": [MEMORY], **spec}}


def pytorchjob(master: int = 1, **spec: Any) -> dict[str, Any]:
    role = {"restartPolicy": "OnFailure", "template": pod()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "llama"},
        "spec": {
            "nprocPerNode": "8",
            "pytorchReplicaSpecs": {
                "Master": {"replicas": master, **role},
                "Worker": {"replicas": 3, **role},
            },
            **spec,
        },
    }


def jobset(policy: str = "Never", completions: int = 4, **pods: Any) -> dict[str, Any]:
    template = pod(restartPolicy=policy, **{"command": line(4), **pods})
    inner = {"parallelism": 4, "completions": completions, "template": template}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llama"},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": inner}}]},
    }


def test_nodes_and_devices_are_facts_of_each_kind(tmp_path: Path) -> None:
    for manifest, nodes in ((trainjob(), 2), (pytorchjob(), 4), (jobset(), 4)):
        found = job(tmp_path, manifest)

        assert (found.value("nodes"), found.value("devices_per_node")) == (nodes, 8), manifest
        assert [each.rule for each in found.findings if each.severity is Severity.ERROR] == []
    assert found.value("host_bytes") == 64 * 2**30


def test_other_kinds_say_nothing(tmp_path: Path) -> None:
    found = job(tmp_path, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"train_batch_size": "4"}})

    assert (found.facts, found.findings, found.unread) == ({}, (), ())


def test_what_runs_in_a_container_is_read_at_its_line(tmp_path: Path) -> None:
    text = yaml.safe_dump(
        trainjob(trainer={"command": ["bash", "-c"], "args": ["export NCCL_IB_DISABLE=1\ntorchrun t.py\n"]})
    )

    found = job(tmp_path, text)

    assert [(each.rule, each.place and each.place.line) for each in found.findings] == [
        ("nccl-sockets", text[: text.index("NCCL")].count("\n") + 1)
    ]


def test_variables_of_a_container_are_those_of_its_script(tmp_path: Path) -> None:
    found = job(tmp_path, trainjob(trainer={"env": [{"name": "NCCL_DEBUG", "value": "TRACE"}]}))

    assert rules(found) == ["nccl-debug-trace"]


def test_keys_that_no_model_has_are_found_at_every_level(tmp_path: Path) -> None:
    assert rules(job(tmp_path, trainjob(trainer={"numProcsPerNode": 8}))) == ["misspelt-key-silent"]
    assert rules(job(tmp_path, trainjob(podTemplateOverrides=[]))) == ["removed-key"]
    assert rules(job(tmp_path, trainjob(trainer={"numNodes": "2"}))) == ["wrong-type"]


def test_processes_of_a_pytorchjob_are_text(tmp_path: Path) -> None:
    assert rules(job(tmp_path, pytorchjob(nprocPerNode=8))) == ["wrong-type"]
    assert rules(job(tmp_path, pytorchjob(nprocPerNode="8"))) == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [({}, ["kubernetes-suspended"]), ({"kueue.x-k8s.io/queue-name": "team"}, [])],
)
def test_a_suspended_job_needs_a_queue(tmp_path: Path, labels: dict[str, str], expected: list[str]) -> None:
    manifest = trainjob(suspend=True)
    manifest["metadata"] = {"name": "llama", "labels": labels}

    assert rules(job(tmp_path, manifest)) == expected


def test_a_queue_is_named_by_a_label(tmp_path: Path) -> None:
    manifest = trainjob()
    manifest["metadata"] = {"name": "llama", "annotations": {"kueue.x-k8s.io/queue-name": "team"}}

    assert rules(job(tmp_path, manifest)) == ["kueue-annotation"]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (8, []),
        (4, ["kubernetes-too-few-gpus"]),
        (16, ["kubernetes-idle-gpus"]),
        (None, ["kubernetes-no-gpus"]),
    ],
)
def test_devices_of_a_pod_against_its_processes(
    tmp_path: Path, gpus: int | None, expected: list[str]
) -> None:
    limits = {"memory": "64Gi"} if gpus is None else {"nvidia.com/gpu": gpus}

    assert rules(job(tmp_path, trainjob(trainer={"resourcesPerNode": {"limits": limits}}))) == expected


def test_several_processes_need_shared_memory(tmp_path: Path) -> None:
    assert rules(job(tmp_path, jobset(has_memory=False))) == ["kubernetes-small-shm"]
    assert rules(job(tmp_path, jobset(has_memory=False, hostIPC=True))) == []


def test_a_pytorchjob_has_one_master_and_known_policies(tmp_path: Path) -> None:
    assert rules(job(tmp_path, pytorchjob(master=2))) == ["pytorchjob-one-master"]
    manifest = yaml.safe_dump(pytorchjob()).replace("restartPolicy: OnFailure", "restartPolicy: Sometimes", 1)
    assert rules(job(tmp_path, manifest)) == ["pytorchjob-restart-policy"]


def test_elastic_workers_have_no_master_and_a_number_in_range(tmp_path: Path) -> None:
    elastic = pytorchjob(elasticPolicy={"minReplicas": 4, "maxReplicas": 8})

    assert rules(job(tmp_path, elastic)) == ["pytorchjob-elastic-range", "pytorchjob-elastic-master"]
    workers = yaml.safe_load(yaml.safe_dump(pytorchjob(elasticPolicy={"minReplicas": 2, "maxReplicas": 4})))
    del workers["spec"]["pytorchReplicaSpecs"]["Master"]
    assert rules(job(tmp_path, workers)) == []


def test_pods_of_a_jobset_all_start_and_do_not_restart_alone(tmp_path: Path) -> None:
    assert rules(job(tmp_path, jobset(completions=2))) == ["jobset-completions"]
    assert rules(job(tmp_path, jobset(policy="Always"))) == ["kubernetes-restart-always"]


def test_every_pod_is_a_node_of_the_launcher(tmp_path: Path) -> None:
    assert rules(job(tmp_path, jobset(command=line(2)))) == ["kubernetes-nodes-apart"]


def test_pods_of_a_plain_job_may_train_on_their_own(tmp_path: Path) -> None:
    command = ["torchrun", "--standalone", "--nproc-per-node=8", "sweep.py"]
    spec = {"parallelism": 4, "completions": 4, "template": pod(command=command, restartPolicy="Never")}

    assert rules(job(tmp_path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec})) == []
