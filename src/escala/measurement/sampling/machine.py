"""What the whole node and the container use. Knows psutil and cgroups, no process."""

from collections.abc import Callable
from typing import Any

import psutil

from escala.measurement.bench.host import container_memory_bytes, group_texts, host_facts, usable_cores
from escala.measurement.sampling.sample import ContainerUse, InterfaceUse, MachineUse

BYTES_PER_S_PER_MBIT = 1e6 / 8
USED = {
    "": ("memory.current", "memory.max", "memory.stat", "cpu.stat"),
    "cpu": ("cpu.stat",),
    "memory": ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.stat"),
}
# Words of cpu.stat and memory.stat with their unit in seconds or bytes, of cgroup v2 and v1.
THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
DROPPABLE = {"total_inactive_file": 1.0, "inactive_file": 1.0}


class Machine:
    """The node: amounts since the first reading, levels of now."""

    def __init__(self) -> None:
        self._cores, self._usable_cores = psutil.cpu_count() or 1, usable_cores(host_facts())
        self._times = self._began = psutil.cpu_times()
        self._switches = psutil.cpu_stats().ctx_switches
        self._disk = _told(psutil.disk_io_counters)
        self._network = _told(_network) or {}

    def use(self, interval_s: float) -> MachineUse:
        """Processor, memory and disks of the node."""
        before, now = self._times, psutil.cpu_times()
        self._times = now
        memory, disk = psutil.virtual_memory(), _told(psutil.disk_io_counters)
        per_s = 1 / interval_s if interval_s > 0 else 0.0
        return MachineUse(
            cores=self._cores,
            usable_cores=self._usable_cores,
            busy_s=max(0.0, _busy_s(now) - _busy_s(self._began)),
            busy_cores=max(0.0, _busy_s(now) - _busy_s(before)) * per_s,
            waiting_cores=_risen(before, now, "iowait") * per_s,
            stolen_cores=_risen(before, now, "steal") * per_s,
            context_switches=psutil.cpu_stats().ctx_switches - self._switches,
            memory_bytes=float(memory.total),
            used_bytes=float(memory.total - memory.available),
            swap_used_bytes=float(psutil.swap_memory().used),
            disk_read_bytes=_since(disk, self._disk, "read_bytes"),
            disk_written_bytes=_since(disk, self._disk, "write_bytes"),
        )

    def interfaces(self) -> tuple[InterfaceUse, ...]:
        """Every interface that is up, the loopback too: local ranks may talk over it."""
        now, states = _told(_network) or {}, _told(psutil.net_if_stats) or {}
        return tuple(
            InterfaceUse(
                name=name,
                received_bytes=_since(each, self._network.get(name), "bytes_recv") or 0.0,
                sent_bytes=_since(each, self._network.get(name), "bytes_sent") or 0.0,
                link_bytes_per_s=states[name].speed * BYTES_PER_S_PER_MBIT or None,
            )
            for name, each in sorted(now.items())
            if name in states and states[name].isup
        )


class Container:
    """The cgroup of this process: what it holds, and how long it was throttled since the first reading."""

    def __init__(self) -> None:
        self._began_s = _word(group_texts(USED).get("cpu.stat", ""), THROTTLED)

    def use(self, memory_bytes: float) -> ContainerUse:
        """Memory with its limit, where it is below that of the node, and throttling."""
        texts = group_texts(USED)
        used = texts.get("memory.current") or texts.get("memory.usage_in_bytes", "")
        droppable_bytes = _word(texts.get("memory.stat", ""), DROPPABLE) or 0.0
        throttled_s = _word(texts.get("cpu.stat", ""), THROTTLED)
        return ContainerUse(
            used_bytes=max(0.0, float(used) - droppable_bytes) if used.isdigit() else None,
            limit_bytes=container_memory_bytes(texts, memory_bytes),
            throttled_s=None if throttled_s is None else throttled_s - (self._began_s or 0.0),
        )


def _network() -> Any:
    return psutil.net_io_counters(pernic=True)


def _told(ask: Callable[[], Any]) -> Any:
    """What the system says; None where it hides the file that says it, as some containers do."""
    try:
        return ask()
    except (OSError, NotImplementedError):
        return None


def _busy_s(times: Any) -> float:
    """Seconds of all cores in which something ran here; guests are in user already."""
    names = ("user", "nice", "system", "irq", "softirq")
    return sum(float(getattr(times, name, 0.0)) for name in names)


def _risen(before: Any, now: Any, name: str) -> float:
    return max(0.0, float(getattr(now, name, 0.0)) - float(getattr(before, name, 0.0)))


def _since(now: Any, began: Any, name: str) -> float | None:
    """What a counter counted since; of an interface or disk that appeared later, all."""
    return None if now is None else float(getattr(now, name) - getattr(began, name, 0))


def _word(text: str, words: dict[str, float]) -> float | None:
    """The number after the first of some words, each at the start of a line."""
    rows = dict(line.partition(" ")[::2] for line in text.splitlines())
    return next((float(rows[word]) * unit for word, unit in words.items() if word in rows), None)
