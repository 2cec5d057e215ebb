"""What a command used on a node, for people: mean and peak of each resource in a line. Knows no command."""

from collections.abc import Callable, Iterator
from typing import Final

from escala.errors import one_line
from escala.measurement.sampling.usage import GpuUsage, InterfaceUsage, Level, NodeUsage
from escala.report.layout import Chunk
from escala.report.numbers import count, energy, gib, seconds
from escala.units import digits, percent, show_bytes, show_si

CHATTER_BYTES_PER_S: Final = 1000.0
"""Interfaces whose peak is less are not shown."""
Part = tuple[str, list[Chunk]]


def usage_title(given: NodeUsage) -> str:
    """The node, and how long it was sampled."""
    rank = "" if given.rank is None else f" rank {given.rank}"
    return f"{one_line(given.node)}{rank}: {seconds(given.duration_s)} in {count(given.samples)} samples"


def usage_parts(given: NodeUsage) -> Iterator[Part]:
    """A label with what belongs to it, for each resource."""
    yield "CPU", _cpu(given)
    yield "Memory", _memory(given)
    yield "Disk", _disk(given)
    yield "Net", [_interface(each) for each in given.interfaces if _peak(each) >= CHATTER_BYTES_PER_S]
    for gpu in given.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu)
    yield "Energy", _energy(given)


def _cpu(given: NodeUsage) -> list[Chunk]:
    parts: list[Chunk] = []
    if given.busy_cores is not None:
        parts = [f"{_span(given.busy_cores, digits)} of {count(given.usable_cores)} cores busy"]
    if given.machine_busy_cores is not None:
        parts.append(f"whole machine {digits(given.machine_busy_cores.mean)} of {count(given.cores)}")
    if given.context_switches_per_s is not None:
        parts.append(f"{digits(given.context_switches_per_s.mean)} context switches/s")
    return [*parts, f"{seconds(given.cpu_s)} of processor time"]


def _memory(given: NodeUsage) -> list[Chunk]:
    own = [(given.resident_bytes, "resident"), (given.proportional_bytes, "with shared pages once")]
    parts: list[Chunk] = [f"{_span(level, show_bytes)} {name}" for level, name in own if level is not None]
    held = (
        (given.machine_used_bytes, given.machine_memory_bytes, "machine"),
        (given.container_used_bytes, given.container_limit_bytes, "container"),
    )
    return parts + [
        f"{name} at most {gib(level.peak)} of {gib(most)} GiB" for level, most, name in held if level and most
    ]


def _disk(given: NodeUsage) -> list[Chunk]:
    ways = (
        (given.read_bytes_per_s, "read"),
        (given.written_bytes_per_s, "written"),
        (given.disk_read_bytes_per_s, "read on the machine"),
        (given.disk_written_bytes_per_s, "written on the machine"),
    )
    return [f"{_span(level, _rate)} {name}" for level, name in ways if level is not None and level.peak > 0]


def _interface(given: InterfaceUsage) -> str:
    ways = ((given.received_bytes_per_s, "in"), (given.sent_bytes_per_s, "out"))
    said = ", ".join(f"{name} {_span(level, _rate)}" for level, name in ways if level is not None)
    return f"{one_line(given.name)} {said}"


def _peak(given: InterfaceUsage) -> float:
    levels = (given.received_bytes_per_s, given.sent_bytes_per_s)
    return max((level.peak for level in levels if level is not None), default=0.0)


def _gpu(given: GpuUsage) -> list[Chunk]:
    parts: list[Chunk] = [one_line(given.name)]
    if given.busy_share is not None:
        parts.append(f"busy {percent(given.busy_share.mean)} of the time")
    if given.used_bytes is not None and given.memory_bytes is not None:
        parts.append(f"at most {gib(given.used_bytes.peak)} of {gib(given.memory_bytes)} GiB")
    if given.power_w is not None:
        parts.append(_span(given.power_w, _watts))
    if given.sm_clock_hz is not None:
        parts.append(show_si(given.sm_clock_hz.mean, "Hz"))
    if given.temperature_celsius is not None:
        parts.append(f"at most {digits(given.temperature_celsius.peak)} °C")
    return parts + [f"held back {percent(each.share)} by {each.reason}" for each in given.held_back]


def _energy(given: NodeUsage) -> list[Chunk]:
    counted = [each.energy_j for each in given.gpus if each.energy_j is not None]
    parts: list[Chunk] = [f"{energy(sum(counted))} of {len(counted)} GPUs"] if counted else []
    if given.packages_energy_j is not None:
        parts.append(f"{energy(given.packages_energy_j)} of processor packages")
    return parts or ["no counter"]


def _span(level: Level, show: Callable[[float], str]) -> str:
    return f"{show(level.mean)} (peak {show(level.peak)})"


def _watts(value_w: float) -> str:
    return f"{digits(value_w)} W"


def _rate(value_bytes_per_s: float) -> str:
    return show_si(value_bytes_per_s, "B/s")
