"""Probes of storage by fio, where it is installed. Written from the documents of fio 3; never run.

fio goes around the page cache (`direct`), which our own reads and writes do not.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from escala.measurement.bench.probe import Probe, Sample
from escala.measurement.bench.samples import Subject

FILE_BYTES: Final = 64 * 2**20
BLOCKS: Final = {"1 MiB": "1m", "4 KiB": "4k"}
SECONDS: Final = "1"
MS: Final = 1e-3


def fio_probes(folder: Path, *, rests: bool) -> Iterator[Probe]:
    """Sequential write and read in blocks of 1 MiB, random read in blocks of 4 KiB; nothing without fio."""
    if shutil.which("fio") is None:
        return
    for kind, block in (("write", "1 MiB"), ("read", "1 MiB"), ("randread", "4 KiB")):
        subject = Subject(
            part="storage", name=f"fio {kind}, blocks of {block}", payload_bytes=float(FILE_BYTES)
        )
        yield Probe(subjects=(subject,), make=_running(folder, kind, BLOCKS[block]), rests=rests)


def seconds_of(document: Any, kind: str) -> float:
    """Seconds that a file's worth of bytes takes: file / (bytes / runtime in milliseconds) of fio's JSON."""
    side = document["jobs"][0]["write" if kind == "write" else "read"]
    if not side["io_bytes"]:
        raise ValueError("fio moved nothing")
    return float(FILE_BYTES * side["runtime"] * MS / side["io_bytes"])


def _running(folder: Path, kind: str, block: str) -> Any:
    command = ["fio", "--name=escala", f"--filename={folder / 'fio'}", f"--rw={kind}", f"--bs={block}"]
    command += [f"--size={FILE_BYTES}", "--direct=1", "--ioengine=psync", "--end_fsync=1"]
    command += [f"--runtime={SECONDS}", "--output-format=json"]

    def sample() -> tuple[float, ...]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise OSError(done.stderr.strip().partition("\n")[0] or "fio failed")
        return (seconds_of(json.loads(done.stdout), kind),)

    def make(probe: Probe) -> Sample:
        return sample

    return make
