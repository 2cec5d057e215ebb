"""Probes of products and memory where torch is not installed: NumPy in fp32, all threads at work.

Products run on the threads of NumPy's linear algebra, streams on as many of our own.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any, Final

import numpy as np

from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, timing
from escala.measurement.bench.samples import Subject
from escala.measurement.bench.shapes import FLOAT_BYTES, LAYOUTS, PRODUCTS, product_name, stream_floats

# One call moves this part of the arrays: long beside the handing out of work to threads.
PARTS: Final = 8
Array = np.ndarray[Any, np.dtype[np.float32]]
Move = Callable[[Array, Array, Array], object]


def plain_probes(device: Device) -> Iterator[Probe]:
    """Products in fp32, the largest also as backward runs it; copy (two arrays move), add (three)."""
    for shape in PRODUCTS[device.kind]:
        layouts = LAYOUTS if shape == PRODUCTS[device.kind][-1] else LAYOUTS[:1]
        yield from (_product(device, shape, layout) for layout in layouts)
    yield _stream(device, "copy", 2, lambda a, b, c: np.copyto(a, b))
    yield _stream(device, "add", 3, lambda a, b, c: np.add(b, c, out=a))


def _product(device: Device, shape: tuple[int, int, int], layout: str) -> Probe:
    rows, inner, outer = shape
    subject = Subject(
        part="gemm",
        name=product_name("fp32", shape, layout),
        dtype="fp32",
        shape=shape,
        flop=2.0 * rows * inner * outer,
    )
    return Probe(subjects=(subject,), make=lambda probe: timing(_work(shape, layout), device.wait)(probe))


def _work(shape: tuple[int, int, int], layout: str) -> Callable[[], object]:
    """The products of a linear layer in its layouts: y = x wᵀ, dx = dy w, dw = dyᵀ x."""
    rows, inner, outer = shape
    random = np.random.default_rng(0)
    x, w, dy = (
        random.standard_normal(size, np.float32) for size in ((rows, inner), (outer, inner), (rows, outer))
    )
    left, right = {"forward": (x, w.T), LAYOUTS[1]: (dy, w), LAYOUTS[2]: (dy.T, x)}[layout]
    return lambda: left @ right


def _stream(device: Device, name: str, arrays: int, move: Move) -> Probe:
    count = stream_floats(device.kind, device.memory_bytes) // PARTS
    moved = float(arrays * FLOAT_BYTES * count)
    subject = Subject(part="memory", name=name, dtype="fp32", shape=(count,), payload_bytes=moved)

    def make(probe: Probe) -> Sample:
        a, b, c = (np.ones((PARTS, count), np.float32) for _ in range(3))
        turns, threads = cycle(range(PARTS)), ThreadPoolExecutor(device.threads)
        pieces = np.array_split(np.arange(count), device.threads)
        slices = [slice(int(piece[0]), int(piece[-1]) + 1) for piece in pieces]

        def work() -> None:
            turn = next(turns)
            list(threads.map(lambda piece: move(a[turn, piece], b[turn, piece], c[turn, piece]), slices))

        return timing(work, device.wait)(probe)

    return Probe(subjects=(subject,), make=make)
