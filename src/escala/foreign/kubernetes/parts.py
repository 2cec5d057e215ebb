"""What manifests of all kinds share: a ConfigMap of files, devices, shared memory, the line of a pod."""

from typing import Any, Final

from escala.foreign.orders import Order
from escala.foreign.scheduled import line_of, name_of, script

IMAGE: Final = "REGISTRY/escala-torch:2.13"
"""To be replaced: an image with escala and PyTorch."""
FILES, WORK = "/plan", "/work"
RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
VOLUMES: Final = (
    {"name": "shm", "emptyDir": {"medium": "Memory"}},
    {"name": "work", "emptyDir": {}},
)
MOUNTS: Final = (
    {"name": "shm", "mountPath": "/dev/shm"},
    {"name": "work", "mountPath": WORK},
    {"name": "plan", "mountPath": FILES},
)


def volumes(order: Order) -> list[dict[str, Any]]:
    """Memory that processes share, a folder to work in, and the files of the plan."""
    return [*VOLUMES, {"name": "plan", "configMap": {"name": name_of(order)}}]


def command(order: Order, **variables: str) -> list[str]:
    """The shell of a pod: it works on copies of the files, and starts the line of the order."""
    exported = " ".join(f'{name}="{value}"' for name, value in variables.items())
    lines = (
        "set -euo pipefail",
        f"cp -rL {FILES}/. {WORK}",
        f"cd {WORK}",
        f"export {exported}",
        line_of(order),
    )
    return ["bash", "-c", script(*lines)]


def devices(order: Order) -> dict[str, dict[str, int]]:
    """The devices of a pod; limits are requests too."""
    name = RESOURCES[order.problem.accelerator.vendor.lower()]
    return {"limits": {name: order.devices_per_node}}


def lacking_devices(order: Order) -> list[str]:
    """Whether a pod can ask for such devices."""
    vendor = order.problem.accelerator.vendor
    known = vendor.lower() in RESOURCES
    return [] if known else [f"devices of {vendor}: it asks for {', '.join(RESOURCES.values())}"]
