"""Which machine a job runs on, in the words of the command line's options. Builds no cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from escala.catalog.accelerators import accelerator_name
from escala.catalog.clusters import MOST_DEVICES
from escala.errors import InvalidInput
from escala.foreign.facts import Fact
from escala.foreign.jobs import Job

SOCKETS: Final = "eth-100g"
"""The link of nodes whose files force TCP and say nothing of their port: an assumption that is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What nobody said, and what to add to the command line."""

    what: str
    add: str


def devices_of(job: Job) -> int | None:
    """Devices of the job: as said, or nodes * devices on each; None for a number that no cluster has."""
    said, nodes, each = job.count("devices"), job.count("nodes"), job.count("devices_per_node")
    found = said if said is not None else None if each is None else each * (1 if nodes is None else nodes)
    return found if found is not None and 1 <= found <= MOST_DEVICES else None


def machine_of(job: Job, given: Mapping[str, Any]) -> tuple[dict[str, Any] | None, Missing | None]:
    """The options that name the cluster, filled up from the files; without a device, what to add.

    `given` are the options of the command line, which count before the files.
    """
    devices = given["gpus"] or devices_of(job)
    if given["cluster"] is not None:
        return {**given, "gpus": devices}, None
    device, why = _device(job) if given["gpu"] is None else (given["gpu"], "")
    if device is None:
        return None, Missing(what=f"no device: {why}", add="--gpu h100-sxm, or --cluster NAME or FILE")
    if devices is None:
        return None, Missing(what="no number of devices: no file says it", add="--gpus 8")
    per_node = given["gpus_per_node"] or _per_node(job, devices)
    network = given["network"] or (SOCKETS if sockets_at(job) is not None else None)
    return {**given, "gpu": device, "gpus": devices, "gpus_per_node": per_node, "network": network}, None


def sockets_at(job: Job) -> Fact | None:
    """What forces TCP between nodes, where the job has several or nobody says how many."""
    said, nodes = job.facts.get("network"), job.count("nodes")
    return said if said is not None and said.value == "tcp" and nodes != 1 else None


def _per_node(job: Job, devices: int) -> int | None:
    """Devices on a node where the files say so and it is not more than there are."""
    said, nodes = job.count("devices_per_node"), job.count("nodes")
    if said is not None and said >= 1:
        return min(said, devices)
    return devices // nodes if nodes is not None and nodes > 1 and devices % nodes == 0 else None


def _device(job: Job) -> tuple[str | None, str]:
    said = job.value("device")
    if said is None:
        return None, "no file names it"
    try:
        return accelerator_name(str(said)), ""
    except InvalidInput:
        return None, f"'{said}' is not in the catalog"
