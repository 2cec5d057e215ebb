"""Samples summed up as they come: mean over time and peak of each resource, by node. Keeps no sample.

A mean is weighted by the time that each sample stands for. A rate is what a sum grew by over that time.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from escala.measurement.sampling.sample import GpuUse, InterfaceUse, Sample
from escala.measurement.sampling.usage import GpuUsage, HeldBack, InterfaceUsage, Level, NodeUsage

SHORTEST_S: Final = 0.2
"""Means over less are no peak: processor time is counted in hundredths of a second."""
LEVELS: Final[dict[str, Callable[[Sample], float | None]]] = {
    "resident_bytes": lambda each: each.command.resident_bytes,
    "proportional_bytes": lambda each: each.command.proportional_bytes,
    "machine_used_bytes": lambda each: each.machine.used_bytes,
    "swap_used_bytes": lambda each: each.machine.swap_used_bytes,
    "container_used_bytes": lambda each: each.container.used_bytes,
}
MEANS: Final[dict[str, Callable[[Sample], float | None]]] = {
    "busy_cores": lambda each: each.command.busy_cores,
    "machine_busy_cores": lambda each: each.machine.busy_cores,
    "waiting_cores": lambda each: each.machine.waiting_cores,
    "stolen_cores": lambda each: each.machine.stolen_cores,
}
RATES: Final[dict[str, Callable[[Sample], float | None]]] = {
    "context_switches_per_s": lambda each: each.machine.context_switches,
    "read_bytes_per_s": lambda each: each.command.read_bytes,
    "written_bytes_per_s": lambda each: each.command.written_bytes,
    "disk_read_bytes_per_s": lambda each: each.machine.disk_read_bytes,
    "disk_written_bytes_per_s": lambda each: each.machine.disk_written_bytes,
}
GPU_LEVELS: Final = (
    *("busy_share", "memory_busy_share", "used_bytes", "power_w"),
    *("sm_clock_hz", "memory_clock_hz", "temperature_celsius"),
)
Key = tuple[str | int, ...]


class Totals:
    """The usage of every node whose samples are added."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, int | None], _Node] = {}

    def add(self, sample: Sample) -> None:
        """Count one sample."""
        key = (sample.node, sample.rank)
        if key not in self._nodes:
            self._nodes[key] = _Node(sample)
        self._nodes[key].add(sample)

    def usage(self) -> tuple[NodeUsage, ...]:
        """What was added so far, one entry for each node and rank."""
        return tuple(self._nodes[key].usage() for key in self._nodes)


def summed(samples: Iterable[Sample]) -> tuple[NodeUsage, ...]:
    """The usage of every node of some samples."""
    totals = Totals()
    for each in samples:
        totals.add(each)
    return totals.usage()


class _Meter:
    """Mean over time and peak of the numbers that are added."""

    def __init__(self) -> None:
        self._sum, self.time_s, self._last = 0.0, 0.0, 0.0
        self._peak = float("-inf")

    def add(self, value: float, interval_s: float, *, is_peak: bool = True) -> None:
        """Add what was so for a time."""
        self._sum += value * interval_s
        self.time_s += interval_s
        self._last = value
        self._peak = max(self._peak, value) if is_peak else self._peak

    def level(self) -> Level:
        """What was added; the last number where no time passed."""
        mean = self._sum / self.time_s if self.time_s > 0 else self._last
        return Level(mean=mean, peak=max(self._peak, mean))


class _Node:
    """The meters of one node."""

    def __init__(self, first: Sample) -> None:
        self._first = self._last = first
        self._samples, self._duration_s = 0, 0.0
        self._meters: dict[Key, _Meter] = {}

    def add(self, sample: Sample) -> None:
        """Count one sample."""
        before = self._last
        took_s = max(0.0, sample.elapsed_s - before.elapsed_s)  # longer than its interval after a lost sample
        for name, read in LEVELS.items():
            self._level((name,), read(sample), took_s)
        for name, read in MEANS.items():
            self._mean((name,), read(sample), took_s)
        for name, read in RATES.items():
            self._rate((name,), read(before), read(sample), took_s)
        known = {each.name: each for each in before.interfaces}
        for each in sample.interfaces:
            self._interface(known.get(each.name, each), each, took_s)
        for gpu in sample.gpus:
            self._gpu(gpu, took_s)
        self._last = sample
        self._samples += 1
        self._duration_s += took_s

    def usage(self) -> NodeUsage:
        """What was added so far."""
        first, last = self._first, self._last
        throttled_s = last.container.throttled_s
        return NodeUsage(
            node=first.node,
            rank=first.rank,
            began=first.time,
            ended=last.time,
            duration_s=self._duration_s,
            samples=self._samples,
            cores=last.machine.cores,
            usable_cores=last.machine.usable_cores,
            cpu_s=last.command.cpu_s,
            **{name: self._read(name) for name in (*LEVELS, *MEANS, *RATES)},
            throttled_share=throttled_s / self._duration_s
            if throttled_s is not None and self._duration_s > 0
            else None,
            machine_memory_bytes=last.machine.memory_bytes,
            container_limit_bytes=last.container.limit_bytes,
            interfaces=tuple(self._interface_usage(each) for each in last.interfaces),
            gpus=tuple(self._gpu_usage(each) for each in last.gpus),
            packages_energy_j=sum(each.energy_j for each in last.packages) if last.packages else None,
        )

    def _level(self, key: Key, value: float | None, took_s: float) -> None:
        if value is not None:
            self._meters.setdefault(key, _Meter()).add(value, took_s)

    def _mean(self, key: Key, value: float | None, took_s: float) -> None:
        if value is not None and took_s > 0:
            self._meters.setdefault(key, _Meter()).add(value, took_s, is_peak=took_s >= SHORTEST_S)

    def _rate(self, key: Key, before: float | None, now: float | None, took_s: float) -> None:
        if before is not None and now is not None and now >= before and took_s > 0:
            self._mean(key, (now - before) / took_s, took_s)

    def _interface(self, before: InterfaceUse, now: InterfaceUse, took_s: float) -> None:
        self._rate((now.name, "received"), before.received_bytes, now.received_bytes, took_s)
        self._rate((now.name, "sent"), before.sent_bytes, now.sent_bytes, took_s)

    def _gpu(self, gpu: GpuUse, took_s: float) -> None:
        for name in GPU_LEVELS:
            self._level((gpu.index, name), getattr(gpu, name), took_s)
        for reason in gpu.held_back_by:
            self._level((gpu.index, "held back", reason), 1.0, took_s)

    def _read(self, *key: str | int) -> Any:
        """The level of a meter; None where nobody said anything."""
        return self._meters[key].level() if key in self._meters else None

    def _interface_usage(self, last: InterfaceUse) -> InterfaceUsage:
        return InterfaceUsage(
            name=last.name,
            received_bytes_per_s=self._read(last.name, "received"),
            sent_bytes_per_s=self._read(last.name, "sent"),
            link_bytes_per_s=last.link_bytes_per_s,
        )

    def _gpu_usage(self, last: GpuUse) -> GpuUsage:
        return GpuUsage(
            index=last.index,
            uuid=last.uuid,
            name=last.name,
            **{name: self._read(last.index, name) for name in GPU_LEVELS},
            memory_bytes=last.memory_bytes,
            power_cap_w=last.power_cap_w,
            energy_j=last.energy_j,
            held_back=self._held_back(last.index),
        )

    def _held_back(self, index: int) -> tuple[HeldBack, ...]:
        """Reasons with their share of the time, the longest first."""
        found = [
            HeldBack(reason=str(key[2]), share=meter.time_s / self._duration_s)
            for key, meter in self._meters.items()
            if len(key) == 3 and key[0] == index and self._duration_s > 0
        ]
        return tuple(sorted(found, key=lambda each: (-each.share, each.reason)))
