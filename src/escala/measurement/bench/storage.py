"""Probes of storage in one folder: a large file written with fsync and read back, and many small ones.

The page cache is told to forget the file before it is read; a file system may keep its own.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from escala.measurement.bench.probe import Probe, Sample
from escala.measurement.bench.samples import Subject

FILE_BYTES: Final = 64 * 2**20
SMALL_BYTES, SMALL_FILES = 4096, 100
NEEDED_BYTES: Final = 4 * FILE_BYTES


def storage_probes(folder: Path, *, works: bool) -> Iterator[Probe]:
    """Write and read of 64 MiB, and small files one by one; it rests where there is no room for them."""
    rests = not works or shutil.disk_usage(folder).free < NEEDED_BYTES
    large = ("write 64 MiB with fsync", "read 64 MiB")
    yield Probe(
        subjects=tuple(Subject(part="storage", name=name, payload_bytes=float(FILE_BYTES)) for name in large),
        make=lambda probe: _large(folder / "large"),
        slice_s=0.5,
        rests=rests,
    )
    yield Probe(
        subjects=(Subject(part="storage", name="create and write 4 KiB", payload_bytes=float(SMALL_BYTES)),),
        make=lambda probe: _small(folder),
        rests=rests,
    )


def _large(file: Path) -> Sample:
    content = os.urandom(FILE_BYTES)

    def sample() -> tuple[float, ...]:
        return _seconds(lambda: _write(file, content)), _seconds(lambda: _read(file), lambda: _forget(file))

    return sample


def _small(folder: Path) -> Sample:
    content, files = os.urandom(SMALL_BYTES), [folder / f"small-{i}" for i in range(SMALL_FILES)]

    def sample() -> tuple[float, ...]:
        began = time.perf_counter()
        for file in files:
            file.write_bytes(content)
        spent = time.perf_counter() - began
        for file in files:
            file.unlink()
        return (spent / SMALL_FILES,)

    return sample


def _seconds(work: Callable[[], object], before: Callable[[], object] | None = None) -> float:
    if before is not None:
        before()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _write(file: Path, content: bytes) -> None:
    with file.open("wb") as open_file:
        open_file.write(content)
        open_file.flush()
        os.fsync(open_file.fileno())


def _read(file: Path) -> None:
    with file.open("rb", buffering=0) as open_file:
        while open_file.read(2**20):
            pass


def _forget(file: Path) -> None:
    """Tell the kernel to drop what it keeps of a file, where it takes such advice."""
    if hasattr(os, "posix_fadvise"):
        with file.open("rb") as open_file:
            os.posix_fadvise(open_file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
