"""The node and its container, from the texts of /proc, cgroups and sysfs. Knows Linux, little elsewhere."""

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from escala.formats.bench_record import FINGERPRINT_SCHEMA, DeviceFacts, Fingerprint, HostFacts

ROOT: Final = Path("/")
# cgroup v1 writes "no limit" as the largest multiple of a page that fits in 63 bits.
UNLIMITED_BYTES: Final = 2.0**62
# Files of a cgroup by the controller whose tree they are in; version 2 has one tree, ''.
LIMITS: Final = {
    "": ("cpu.max", "memory.max"),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "memory": ("memory.limit_in_bytes",),
}


def host_facts(root: Path = ROOT) -> HostFacts:
    """What this node has, and what its container may use."""
    memory = memory_bytes(_text(root / "proc/meminfo"))
    groups = group_texts(LIMITS, root)
    return HostFacts(
        system=f"{platform.system()} {platform.release()}",
        processor=processor(_text(root / "proc/cpuinfo")) or platform.processor() or platform.machine(),
        cores=cores(),
        numa_nodes=numa_nodes(root),
        numa_cores=numa_cores(root),
        memory_bytes=memory,
        container_cores=container_cores(groups),
        container_memory_bytes=container_memory_bytes(groups, memory),
    )


def load() -> float | None:
    """Processes that wanted to run in the last minute; None where the system does not count them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def usable_cores(host: HostFacts) -> int:
    """Cores that programs may use at once: those of the affinity, at most those of the container."""
    return max(1, int(min(host.cores, host.container_cores or host.cores)))


def usable_bytes(host: HostFacts) -> float:
    """Memory that programs may use: that of the node, at most that of the container; 0 where nobody says."""
    found = [each for each in (host.memory_bytes, host.container_memory_bytes) if each is not None]
    return min(found, default=0.0)


def fingerprint(device: DeviceFacts, host: HostFacts, versions: Mapping[str, str], ranks: int) -> Fingerprint:
    """Hash of what decides speed; the present clock, which comes and goes, is left out."""
    facts = msgspec.to_builtins((device, host, dict(sorted(versions.items())), ranks))
    facts[0].pop("clock_hz")
    digest = hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
    return Fingerprint(schema=FINGERPRINT_SCHEMA, hash=digest[:16])


def processor(cpuinfo: str) -> str:
    """The model of the processor as /proc/cpuinfo names it; empty where it does not."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def memory_bytes(meminfo: str) -> float | None:
    """MemTotal of /proc/meminfo."""
    found = re.search(r"^MemTotal:\s*(\d+) kB$", meminfo, re.MULTILINE)
    return float(found[1]) * 1024 if found else None


def cores() -> int:
    """Cores that this process may be scheduled on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def numa_nodes(root: Path = ROOT) -> int:
    """Memory nodes of the kernel; 1 where it does not say."""
    return max(1, len(list((root / "sys/devices/system/node").glob("node[0-9]*"))))


def numa_cores(root: Path = ROOT) -> tuple[str, ...]:
    """The cores of each memory node, in the order of the nodes."""
    found = (root / "sys/devices/system/node").glob("node[0-9]*")
    nodes = sorted(found, key=lambda node: int(node.name.removeprefix("node")))
    return tuple(_text(node / "cpulist").strip() for node in nodes)


def container_cores(groups: Mapping[str, str]) -> float | None:
    """Cores that a quota grants: quota / period of cgroup v2 (cpu.max) or v1; None without a limit."""
    quota, _, period = groups.get("cpu.max", "").partition(" ")
    quota, period = quota or groups.get("cpu.cfs_quota_us", ""), period or groups.get("cpu.cfs_period_us", "")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def container_memory_bytes(groups: Mapping[str, str], whole_bytes: float | None) -> float | None:
    """The memory limit of cgroup v2 or v1; None without one, or where it is no less than the whole."""
    text = groups.get("memory.max") or groups.get("memory.limit_in_bytes", "")
    if not text.isdigit():
        return None
    limit = float(text)
    return limit if limit < min(whole_bytes or UNLIMITED_BYTES, UNLIMITED_BYTES) else None


def group_texts(wanted: Mapping[str, tuple[str, ...]], root: Path = ROOT) -> dict[str, str]:
    """Files of the process's own cgroup, and of those that are not there those of the root that it sees."""
    found: dict[str, str] = {}
    for folder, names in _folders(wanted, root):
        for name in names:
            text = _text(folder / name).strip()
            if text:
                found.setdefault(name, text)
    return found


def _folders(wanted: Mapping[str, tuple[str, ...]], root: Path) -> list[tuple[Path, tuple[str, ...]]]:
    """Folders and their files: for v2 one tree, for v1 a tree for each controller."""
    base, places = root / "sys/fs/cgroup", cgroup_paths(_text(root / "proc/self/cgroup"))
    own = [(base / key / places.get(key, ""), names) for key, names in wanted.items()]
    return [*own, *((base / key, names) for key, names in wanted.items())]


def cgroup_paths(text: str) -> dict[str, str]:
    """Controller and path of each line of /proc/self/cgroup ('4:memory:/job' is memory: job; v2 has '')."""
    lines = [line.split(":", 2) for line in text.splitlines()]
    return {
        controller: path.lstrip("/")
        for _, controllers, path in (line for line in lines if len(line) == 3)
        for controller in controllers.split(",")
    }


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
