"""A plan as a JobSet that Kueue admits: one pod a node, all started and ended together."""

from typing import Any, Final

from escala.foreign.kubernetes.parts import IMAGE, MOUNTS, command, devices, lacking_devices, volumes
from escala.foreign.kubernetes.writing_trainjob import submission
from escala.foreign.orders import Order, OutFile, Target, header
from escala.foreign.scheduled import PORT, also, name_of, own_files, yaml_of
from escala.foreign.torchrun import writing

TARGET: Final = Target(
    name="kubernetes-jobset",
    title="JobSet with Kueue, JobSet API",
    version="v1alpha2",
    abilities=writing.TARGET.abilities,
    launch="bash submit.sh",
    page="docs/targets/kubernetes.md",
    wraps=True,
    also=lambda order: [*lacking_devices(order), *also(order)],
)
QUEUE: Final = "user-queue"
"""To be replaced by the name of a LocalQueue."""
RESTARTS: Final = 3


def write(order: Order) -> list[OutFile]:
    """The manifest, the script that submits it, and escala's own where no other line is given."""
    return [
        OutFile(name="jobset.yaml", text=yaml_of(header(TARGET, order), manifest(order))),
        submission(TARGET, order, "jobset.yaml"),
        *own_files(TARGET, order),
    ]


def manifest(order: Order) -> dict[str, Any]:
    """One replicated job with a pod for each node; the first pod is where ranks meet."""
    name = name_of(order)
    run = command(
        order,
        NODE_RANK="$JOB_COMPLETION_INDEX",
        MASTER_ADDR=f"{name}-node-0-0.{name}",
        MASTER_PORT=str(PORT),
    )
    container = {
        "name": "node",
        "image": IMAGE,
        "command": run,
        "resources": devices(order),
        "volumeMounts": list(MOUNTS),
    }
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes(order)}
    job = {
        "parallelism": order.nodes,
        "completions": order.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}},
        "spec": {
            "suspend": True,
            "failurePolicy": {"maxRestarts": RESTARTS},
            "replicatedJobs": [{"name": "node", "template": {"spec": job}}],
        },
    }
