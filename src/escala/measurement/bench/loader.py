"""Probes of a data loader: one sample decoded, and samples of a DataLoader whose workers decode.

A sample is an image of 224 x 224 pixels, compressed by zlib and made floats: the work of a loader without any
library for images. Workers live as long as the bench, so that their start is not timed.
"""

import signal
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from escala.measurement.bench.probe import Probe, Sample, clocked, no_wait, timing
from escala.measurement.bench.samples import Subject

PIXELS: Final = (224, 224, 3)
BATCH, BATCHES = 8, 16


def compressed() -> bytes:
    """One image, of which zlib leaves about a half: its lower bits are noise."""
    return zlib.compress(np.random.default_rng(0).integers(0, 16, PIXELS, np.uint8).tobytes())


def decoded(content: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The floats of one image, 0 to 1."""
    numbers = np.frombuffer(zlib.decompress(content), np.uint8).reshape(PIXELS)
    return numbers.astype(np.float32) / np.float32(255.0)


class Images:
    """A data set of as many copies of one image as a sample of the probe takes."""

    def __init__(self) -> None:
        self.content = compressed()

    def __len__(self) -> int:
        """Images of one sample."""
        return BATCH * BATCHES

    def __getitem__(self, index: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """One decoded image."""
        return decoded(self.content)


def decode_probe(*, rests: bool) -> Probe:
    """One image decoded by one thread."""
    subject = Subject(part="loader", name="decode one image", shape=PIXELS)
    content = compressed()
    make = timing(lambda: decoded(content), no_wait)
    return Probe(subjects=(subject,), make=make, rests=rests)


def worker_probes(workers: int, *, rests: bool) -> Iterator[Probe]:
    """Seconds of an image of a DataLoader with 1 worker and with as many as there are cores."""
    for count in sorted({1, workers}):
        name = f"DataLoader, {count} worker{'s' * (count > 1)}, each image"
        subject = Subject(part="loader", name=name, shape=PIXELS)
        yield Probe(subjects=(subject,), make=_loading(count), rests=rests)


def _loading(workers: int) -> Any:
    def make(probe: Probe) -> Sample:
        from torch.utils.data import DataLoader

        loader = DataLoader(
            Images(),
            batch_size=BATCH,
            num_workers=workers,
            persistent_workers=True,
            worker_init_fn=_leave_signals,
        )

        def work() -> None:
            for _ in loader:
                pass

        return lambda: (clocked(work, no_wait) / BATCH / BATCHES,)

    return make


def _leave_signals(worker: int) -> None:
    """Ctrl-C is for the bench, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
