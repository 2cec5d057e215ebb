"""When a variable slows a job, hangs it or is not heard. The words are in data/rules/environment.toml."""

from collections.abc import Iterator, Mapping
from typing import Final

from escala.foreign.findings import Edit, Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.readings import Role
from escala.foreign.shelltext import Word

RENAMED: Final = {
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING": "TORCH_NCCL_ENABLE_TIMING",
    "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_ALLOC_CONF",
}
"""Old names that are still heard."""
NOT_HEARD: Final = {
    "TRANSFORMERS_CACHE": "HF_HOME",
    "HF_HUB_ENABLE_HF_TRANSFER": "HF_XET_HIGH_PERFORMANCE",
}
"""Names that nothing hears any more."""
INTERFACES: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
WITHIN: Final = {
    "lo": "the loopback never leaves its node",
    "docker0": "Docker's bridge never leaves its node",
}
CONSUMER: Final = ("rtx-40", "rtx40", "rtx-50", "rtx50", "4090", "5090")
"""Devices without access to each other's memory, for which forbidding it changes nothing."""
ON: Final = frozenset(("1", "true", "yes"))


def is_on(found: Mapping[str, Word], name: str) -> bool:
    """Whether a switch is set to one."""
    return name in found and found[name].text.lower() in ON


def _says(found: Mapping[str, Word], name: str, *values: str) -> bool:
    return name in found and found[name].text.upper() in values


def forces_sockets(found: Mapping[str, Word]) -> str | None:
    """The variable that makes NCCL use sockets between nodes."""
    if is_on(found, "NCCL_IB_DISABLE"):
        return "NCCL_IB_DISABLE"
    return "NCCL_NET" if _says(found, "NCCL_NET", "SOCKET") else None


def rules_of(job: Job, found: Mapping[str, Word]) -> Iterator[Finding]:
    """All findings of the variables that one document sets."""
    nodes = _nodes(job)
    if nodes != 1:
        yield from _between(found, nodes)
    yield from _within(job, found)
    yield from _slow(found)
    yield from _names(found)
    yield from _visible(job, found)


def _nodes(job: Job) -> int | None:
    """The most nodes that anything in the job speaks of."""
    said = [job.count("nodes"), *(each.value for each in (r.fact("nodes") for r in job.readings) if each)]
    return max((each for each in said if isinstance(each, int)), default=None)


def _between(found: Mapping[str, Word], nodes: int | None) -> Iterator[Finding]:
    """What is forced between nodes."""
    sockets = forces_sockets(found)
    if sockets is not None:
        word, interface = found[sockets], found.get("NCCL_SOCKET_IFNAME")
        over = f" over {interface.text}" if interface is not None and interface.text[:1].isalpha() else ""
        edits = (_written(word, "0"),) if sockets == "NCCL_IB_DISABLE" else ()
        said = f"{sockets}={word.text}"
        yield finding("nccl-sockets", word.place, edits=edits, variable=said, interface=over)
    for name in INTERFACES:
        only = found[name].text.lstrip("=") if name in found else ""
        if nodes is not None and only in WITHIN:
            said = f"{name}={found[name].text}"
            yield finding(
                "interface-within-node", found[name].place, variable=said, nodes=nodes, why_of=WITHIN[only]
            )
    if _says(found, "NCCL_NET_GDR_LEVEL", "LOC", "0"):
        word = found["NCCL_NET_GDR_LEVEL"]
        yield finding("nccl-no-gpu-direct", word.place, variable=f"NCCL_NET_GDR_LEVEL={word.text}")


def _within(job: Job, found: Mapping[str, Word]) -> Iterator[Finding]:
    """What is forbidden between devices of a node."""
    name = ""
    if is_on(found, "NCCL_P2P_DISABLE"):
        name = "NCCL_P2P_DISABLE"
    elif _says(found, "NCCL_P2P_LEVEL", "LOC", "0"):
        name = "NCCL_P2P_LEVEL"
    device = str(job.value("device") or "").lower()
    if name and not any(each in device for each in CONSUMER):
        yield finding("nccl-no-peer-access", found[name].place, variable=f"{name}={found[name].text}")
    if is_on(found, "NCCL_SHM_DISABLE"):
        yield finding("nccl-no-shared-memory", found["NCCL_SHM_DISABLE"].place)


def _slow(found: Mapping[str, Word]) -> Iterator[Finding]:
    """Aids for finding faults that cost time when they stay."""
    for name, values, rule, text in (
        ("CUDA_LAUNCH_BLOCKING", ("1",), "cuda-launch-blocking", "0"),
        ("NCCL_DEBUG", ("TRACE",), "nccl-debug-trace", "WARN"),
        ("TORCH_DISTRIBUTED_DEBUG", ("DETAIL",), "torch-distributed-debug", "OFF"),
        ("TORCH_NCCL_BLOCKING_WAIT", ("1",), "nccl-blocking-wait", "0"),
        ("NCCL_BLOCKING_WAIT", ("1",), "nccl-blocking-wait", "0"),
    ):
        if _says(found, name, *values):
            word = found[name]
            yield finding(rule, word.place, edits=(_written(word, text),), variable=f"{name}={word.text}")
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        if name in found:
            yield finding("nccl-tuning-fixed", found[name].place, variable=f"{name}={found[name].text}")


def _names(found: Mapping[str, Word]) -> Iterator[Finding]:
    for names, rule in ((RENAMED, "variable-renamed"), (NOT_HEARD, "variable-not-heard")):
        for name, to in names.items():
            if name in found:
                yield finding(rule, found[name].place, variable=name, to=to)


def _visible(job: Job, found: Mapping[str, Word]) -> Iterator[Finding]:
    """Fewer visible devices than processes of a node."""
    word = found.get("CUDA_VISIBLE_DEVICES")
    processes = _processes(job)
    if word is None or word.is_open or processes is None:
        return
    visible = len([each for each in word.text.split(",") if each.strip()])
    if visible < processes:
        yield finding("fewer-visible-devices", word.place, visible=visible, processes=processes)


def _processes(job: Job) -> int | None:
    """Processes that a launcher starts on a node, not devices that a scheduler grants."""
    for reading in job.readings:
        said = reading.fact("devices_per_node")
        if reading.role is Role.LAUNCH and said is not None and isinstance(said.value, int):
            return said.value
    return None


def _written(word: Word, text: str) -> Edit:
    """The change of a value; its place may begin with the variable's name."""
    place = word.place
    return Edit(file=place.file, start=max(place.start, place.end - len(word.text)), end=place.end, text=text)
