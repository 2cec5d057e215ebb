"""Probes of memory: streams on the device, copies between host and device. Counts bytes read and written."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from escala.formats.bench_cluster import PINNED
from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, timing
from escala.measurement.bench.samples import Subject

# Far above what any cache holds, and at most this share of the device's memory in one array.
STREAM_BYTES: Final = {"cpu": 256 * 2**20, "cuda": 2**30}
MOST_SHARE: Final = 1 / 16
TRANSFER_BYTES: Final = 256 * 2**20
FLOAT_BYTES: Final = 4
Works = Callable[[Any, Any, Any], Callable[[], object]]


def stream_probes(device: Device) -> Iterator[Probe]:
    """Copy (two arrays move) and triad a = b + 3 c (three arrays move). Source: McCalpin, STREAM."""
    most = int(device.memory_bytes * MOST_SHARE) or STREAM_BYTES[device.kind]
    count = min(STREAM_BYTES[device.kind], most) // FLOAT_BYTES

    def copy(a: Any, b: Any, c: Any) -> Callable[[], object]:
        return lambda: a.copy_(b)

    def triad(a: Any, b: Any, c: Any) -> Callable[[], object]:
        return lambda: torch.add(b, c, alpha=3.0, out=a)

    yield _stream(device, "copy", 2, count, copy)
    yield _stream(device, "triad", 3, count, triad)


def transfer_probes(device: Device) -> Iterator[Probe]:
    """Host to device and back, from pinned and pageable memory; nothing where device and host are one."""
    if device.kind == "cpu":
        return
    for pinned in (True, False):
        kind = "pinned" if pinned else "pageable"
        assert pinned is False or PINNED.endswith(kind)
        yield _transfer(device, f"host to device, {kind}", pinned, to_device=True)
        yield _transfer(device, f"device to host, {kind}", pinned, to_device=False)


def _stream(device: Device, name: str, arrays: int, count: int, works: Works) -> Probe:
    subject = Subject(
        part="memory",
        name=name,
        dtype="fp32",
        shape=(count,),
        payload_bytes=float(arrays * FLOAT_BYTES * count),
    )

    def make(probe: Probe) -> Sample:
        a, b, c = (torch.ones(count, device=device.place) for _ in range(3))
        return timing(works(a, b, c), device.wait)(probe)

    return Probe(subjects=(subject,), make=make)


def _transfer(device: Device, name: str, pinned: bool, *, to_device: bool) -> Probe:
    subject = Subject(part="transfer", name=name, payload_bytes=float(TRANSFER_BYTES))

    def make(probe: Probe) -> Sample:
        host = torch.ones(TRANSFER_BYTES, dtype=torch.uint8, pin_memory=pinned)
        there = torch.ones(TRANSFER_BYTES, dtype=torch.uint8, device=device.place)
        target, source = (there, host) if to_device else (host, there)
        return timing(lambda: target.copy_(source, non_blocking=pinned), device.wait)(probe)

    return Probe(subjects=(subject,), make=make)
