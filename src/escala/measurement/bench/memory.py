"""Probes of memory: streams on the device, copies between host and device. Counts bytes read and written."""

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, Final

import torch

from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, timing
from escala.measurement.bench.samples import Subject
from escala.measurement.bench.shapes import FLOAT_BYTES, stream_floats

# One call moves this part of the arrays, the next call the next part: short calls find quiet moments on a
# busy machine, and a part is out of the caches when its turn comes again.
PARTS: Final = {"cpu": 32, "cuda": 4}
TRANSFER_BYTES: Final = 256 * 2**20
Move = Callable[[Any, Any, Any], object]


def stream_probes(device: Device) -> Iterator[Probe]:
    """Copy (two arrays move) and triad a = b + 3 c (three arrays move). Source: McCalpin, STREAM."""
    count = stream_floats(device.kind, device.memory_bytes) // PARTS[device.kind]
    yield _stream(device, "copy", 2, count, lambda a, b, c: a.copy_(b))
    yield _stream(device, "triad", 3, count, lambda a, b, c: torch.add(b, c, alpha=3.0, out=a))


def transfer_probes(device: Device) -> Iterator[Probe]:
    """Host to device and back, from pinned and pageable memory; nothing where device and host are one."""
    if device.kind == "cpu":
        return
    for pinned in (True, False):
        kind = "pinned" if pinned else "pageable"
        yield _transfer(device, f"host to device, {kind}", pinned, to_device=True)
        yield _transfer(device, f"device to host, {kind}", pinned, to_device=False)


def _stream(device: Device, name: str, arrays: int, count: int, move: Move) -> Probe:
    moved = float(arrays * FLOAT_BYTES * count)
    subject = Subject(part="memory", name=name, dtype="fp32", shape=(count,), payload_bytes=moved)

    def make(probe: Probe) -> Sample:
        a, b, c = (torch.ones(PARTS[device.kind], count, device=device.place) for _ in range(3))
        turns = cycle(range(PARTS[device.kind]))

        def work() -> None:
            turn = next(turns)
            move(a[turn], b[turn], c[turn])

        return timing(work, device.wait)(probe)

    return Probe(subjects=(subject,), make=make)


def _transfer(device: Device, name: str, pinned: bool, *, to_device: bool) -> Probe:
    subject = Subject(part="transfer", name=name, payload_bytes=float(TRANSFER_BYTES))

    def make(probe: Probe) -> Sample:
        host = torch.ones(TRANSFER_BYTES, dtype=torch.uint8, pin_memory=pinned)
        there = torch.ones(TRANSFER_BYTES, dtype=torch.uint8, device=device.place)
        target, source = (there, host) if to_device else (host, there)
        return timing(lambda: target.copy_(source, non_blocking=pinned), device.wait)(probe)

    return Probe(subjects=(subject,), make=make)
