"""The folder of a watch: where it lies, and its files that grow while the command runs. Knows no process."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import IO, Final

import msgspec

from escala.errors import InvalidInput
from escala.inputs import reason
from escala.measurement.sampling.place import node, rank, ranks
from escala.measurement.sampling.sample import Sample
from escala.measurement.watch.lines import Stamper

DEFAULT: Final = "watch"
SAMPLES, OUTPUT = "samples.jsonl", "output.log"
MOST_RUNS: Final = 1000


def new_folder(given: str | None, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder for a new watch: as given, else watch, watch-2, ...; in a launch one for each process."""
    if given is not None:
        return _made(Path(given))
    if ranks(environment) > 1:
        own = rank(environment)
        return _made(Path(DEFAULT) / (node(environment) if own is None else f"{node(environment)}-{own}"))
    names = [DEFAULT, *(f"{DEFAULT}-{number}" for number in range(2, MOST_RUNS))]
    return _made(Path(next((name for name in names if not os.path.lexists(name)), DEFAULT)))


def _made(folder: Path) -> Path:
    if (folder / SAMPLES).exists():
        raise InvalidInput(f"{folder} holds an earlier watch; name another folder with -o, or move that one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SAMPLES).touch()
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{folder} takes no files ({reason(error)}); name another folder with -o"
        ) from None
    return folder


class Files:
    """samples.jsonl and output.log, written to disk as they come; `fault` says why one could not go on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.fault = folder, ""
        self._samples, self._output = ((folder / name).open("ab", buffering=0) for name in (SAMPLES, OUTPUT))
        self._stampers: dict[int, Stamper] = {}
        self._one_writer = Lock()

    def sample(self, given: Sample) -> None:
        """Append one sample."""
        self._append(self._samples, msgspec.json.encode(given) + b"\n")

    def output(self, stream: int, data: bytes, now_s: float) -> None:
        """Append the lines that some output of one stream completes."""
        with self._one_writer:
            self._append(self._output, self._stampers.setdefault(stream, Stamper()).add(data, now_s))

    def close(self) -> None:
        """Append what has no line end, and close."""
        with self._one_writer:
            for each in self._stampers.values():
                self._append(self._output, each.rest())
            self._stampers.clear()
        self._samples.close()
        self._output.close()

    def remove(self) -> None:
        """Leave nothing behind of a command that could not be started."""
        self.close()
        for name in (SAMPLES, OUTPUT):
            (self.folder / name).unlink()
        with suppress(OSError):  # a folder that was there may hold other files
            self.folder.rmdir()

    def _append(self, file: IO[bytes], data: bytes) -> None:
        """Write; a full disk ends the file, never the command."""
        if not data or file.closed:
            return
        try:
            while data:
                data = data[file.write(data) :]
        except OSError as error:
            self.fault = f"{Path(file.name).name} ends early: {reason(error)}"
            file.close()
