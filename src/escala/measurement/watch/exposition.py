"""The last sample as Prometheus text: a file that is always current, and a port. Takes no sample.

Names follow Prometheus' conventions: base units, `_total` for sums. Every metric has labels node and rank.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from escala.errors import InvalidInput
from escala.inputs import reason
from escala.measurement.sampling.sample import GpuUse, Sample

Labelled = tuple[tuple[str, ...], float | None]
"""Values of the labels, and the number; None is left out."""
# name, field of the sample, what it is
PLAIN: Final = (
    ("cpu_seconds_total", "command.cpu_s", "Processor time of the command"),
    ("processes", "command.processes", "Processes of the command"),
    ("resident_bytes", "command.resident_bytes", "Resident memory of the command"),
    ("proportional_bytes", "command.proportional_bytes", "The same with shared pages counted once"),
    ("read_bytes_total", "command.read_bytes", "Bytes that the command read from storage"),
    ("written_bytes_total", "command.written_bytes", "Bytes that the command wrote to storage"),
    ("node_cores", "machine.cores", "Cores of the node"),
    ("node_usable_cores", "machine.usable_cores", "Cores that the command may use"),
    ("node_cpu_seconds_total", "machine.busy_s", "Processor time of the node"),
    ("node_context_switches_total", "machine.context_switches", "Context switches of the node"),
    ("node_memory_bytes", "machine.memory_bytes", "Memory of the node"),
    ("node_used_bytes", "machine.used_bytes", "Memory of the node that is not available"),
    ("node_swap_used_bytes", "machine.swap_used_bytes", "Swap in use"),
    ("node_disk_read_bytes_total", "machine.disk_read_bytes", "Bytes read by the disks of the node"),
    ("node_disk_written_bytes_total", "machine.disk_written_bytes", "Bytes written by the disks of the node"),
    ("container_used_bytes", "container.used_bytes", "Memory of the container without droppable cache"),
    ("container_limit_bytes", "container.limit_bytes", "Memory that the container may use"),
    ("container_throttled_seconds_total", "container.throttled_s", "Time held back by the processor quota"),
)
# name, field of a GPU, what it is
OF_GPUS: Final = (
    ("gpu_busy_ratio", "busy_share", "Share of the time with some kernel running"),
    ("gpu_memory_busy_ratio", "memory_busy_share", "Share of the time with memory traffic"),
    ("gpu_used_bytes", "used_bytes", "Memory in use on the GPU"),
    ("gpu_memory_bytes", "memory_bytes", "Memory of the GPU"),
    ("gpu_power_watts", "power_w", "Power of the GPU"),
    ("gpu_power_cap_watts", "power_cap_w", "Power at which the GPU is held back"),
    ("gpu_energy_joules_total", "energy_j", "Energy counter of the GPU"),
    ("gpu_sm_clock_hertz", "sm_clock_hz", "Clock of the multiprocessors"),
    ("gpu_memory_clock_hertz", "memory_clock_hz", "Clock of the memory"),
    ("gpu_temperature_celsius", "temperature_celsius", "Temperature of the GPU"),
)
GPU: Final = ("gpu", "uuid", "name")
SUM: Final = "_total"


class Exposition(Collector):
    """The metrics of the last sample."""

    def __init__(self) -> None:
        self._last: Sample | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def update(self, sample: Sample, file: Path) -> None:
        """Make a sample the last one, and write the file whole; a full disk leaves the earlier file."""
        self._last = sample
        with suppress(OSError):
            write_to_textfile(str(file), self._registry)

    def serve(self, port: int) -> None:
        """Answer on a port until the process ends."""
        start_http_server(port, registry=self._registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus-client asks for."""
        return iter(()) if self._last is None else metrics(self._last)


def metrics(sample: Sample) -> Iterator[Metric]:
    """Every metric of a sample."""
    for name, field, words in PLAIN:
        yield _metric(sample, name, words, (), [((), attrgetter(field)(sample))])
    for name, field in (("received", "received_bytes"), ("sent", "sent_bytes")):
        rows = [((each.name,), getattr(each, field)) for each in sample.interfaces]
        yield _metric(sample, f"network_{name}_bytes_total", f"Bytes {name}", ("interface",), rows)
    for name, field, words in OF_GPUS:
        of_each = [(_gpu(each), getattr(each, field)) for each in sample.gpus]
        yield _metric(sample, name, words, GPU, of_each)
    held = [((*_gpu(each), why), 1.0) for each in sample.gpus for why in each.held_back_by]
    yield _metric(sample, "gpu_held_back", "Reasons for a lower clock", (*GPU, "reason"), held)
    joules = [((each.name,), each.energy_j) for each in sample.packages]
    yield _metric(sample, "package_energy_joules_total", "Energy of a processor", ("package",), joules)


def _gpu(given: GpuUse) -> tuple[str, ...]:
    return str(given.index), given.uuid, given.name


def _metric(
    sample: Sample, name: str, words: str, labels: tuple[str, ...], rows: Sequence[Labelled]
) -> Metric:
    kind = CounterMetricFamily if name.endswith(SUM) else GaugeMetricFamily
    made = kind(f"escala_{name}", words, labels=("node", "rank", *labels))
    own = (sample.node, "" if sample.rank is None else str(sample.rank))
    for values, number in rows:
        if number is not None:
            made.add_metric((*own, *values), number)
    return made


def refuse_taken(port: int) -> None:
    """Refuse a port that cannot be listened on, before the command starts."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError as error:
            raise InvalidInput(
                f"--prometheus {port}: the port cannot be used ({reason(error)}); give another"
            ) from None
