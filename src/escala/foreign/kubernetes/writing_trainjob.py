"""A plan as a TrainJob of Kubeflow Trainer: nodes, processes, devices, and the line that starts ranks."""

from typing import Any, Final

from escala.foreign.kubernetes.parts import IMAGE, MOUNTS, command, devices, lacking_devices, volumes
from escala.foreign.orders import Order, OutFile, Target, header
from escala.foreign.scheduled import also, name_of, own_files, yaml_of
from escala.foreign.torchrun import writing

TARGET: Final = Target(
    name="kubernetes-trainjob",
    title="Kubeflow TrainJob v1alpha1, Trainer",
    version="2.3",
    abilities=writing.TARGET.abilities,
    launch="bash submit.sh",
    page="docs/targets/kubernetes.md",
    wraps=True,
    also=lambda order: [*lacking_devices(order), *also(order)],
)


def write(order: Order) -> list[OutFile]:
    """The manifest, the script that submits it, and escala's own where no other line is given."""
    return [
        OutFile(name="trainjob.yaml", text=yaml_of(header(TARGET, order), manifest(order))),
        submission(TARGET, order, "trainjob.yaml"),
        *own_files(TARGET, order),
    ]


def manifest(order: Order) -> dict[str, Any]:
    """The job for the runtime torch-distributed; what a trainer has no key for is a patch of its pods."""
    run = command(
        order, NODE_RANK="$PET_NODE_RANK", MASTER_ADDR="$PET_MASTER_ADDR", MASTER_PORT="$PET_MASTER_PORT"
    )
    pod = {"volumes": volumes(order), "containers": [{"name": "node", "volumeMounts": list(MOUNTS)}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name_of(order)},
        "spec": {
            "runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"},
            "trainer": {
                "image": IMAGE,
                "command": run,
                "numNodes": order.nodes,
                "numProcPerNode": order.devices_per_node,
                "resourcesPerNode": devices(order),
            },
            "runtimePatches": [
                {
                    "manager": "escala.dev/emit",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
                }
            ],
        },
    }


def submission(target: Target, order: Order, manifest_name: str) -> OutFile:
    """A script that puts the files of this folder into a ConfigMap and submits the job."""
    name = name_of(order)
    lines = (
        "#!/usr/bin/env bash",
        header(target, order).rstrip("\n"),
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        f"kubectl create configmap {name} --from-file=. --dry-run=client -o yaml |",
        "  kubectl apply --server-side -f -",
        f"kubectl apply -f {manifest_name}",
    )
    return OutFile(name="submit.sh", text="\n".join(lines) + "\n", is_executable=True)
