"""A command watched from its start to its end: its files, and what they show. Draws nothing."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from escala import __version__
from escala.errors import InvalidInput
from escala.measurement.logs.record import record
from escala.measurement.runrecord import RunRecord
from escala.measurement.sampling.sample import Sample, utc
from escala.measurement.sampling.sampler import Sampler
from escala.measurement.watch.command import Command, Held, let_through, refuse_missing
from escala.measurement.watch.exposition import Exposition, refuse_taken
from escala.measurement.watch.findings import findings
from escala.measurement.watch.folder import Files, new_folder
from escala.measurement.watch.watched import WATCH_SCHEMA, Watched

METRICS: Final = "metrics.prom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asks: a command, its folder (None: a new one), time between samples, a port to serve."""

    words: Sequence[str]
    folder: str | None
    every_s: float
    port: int | None


def watch(asked: Request, held: Held, say: Callable[[str], None]) -> Watched:
    """Run a command and sample it into a new folder, with signals held; `say` tells a person."""
    refuse_missing(asked.words)
    if asked.port is not None:
        refuse_taken(asked.port)
    let_through(held)
    files = Files(new_folder(asked.folder))
    began, began_s = datetime.now(UTC), time.monotonic()
    code, sampler = _relayed(asked, held, files, say)
    ended, duration_s = datetime.now(UTC), time.monotonic() - began_s
    run, fault = _recorded(files)
    return Watched(
        schema=WATCH_SCHEMA,
        escala=__version__,
        command=tuple(asked.words),
        folder=str(files.folder),
        exit_code=code,
        began=utc(began),
        ended=utc(ended),
        duration_s=duration_s,
        every_s=asked.every_s,
        sampling_cpu_s=sampler.cpu_s,
        findings=tuple(each for usage in (run.usage if run else ()) for each in findings(usage)),
        gaps=(*sampler.gaps, *(each for each in (files.fault, fault) if each)),
        run=run,
    )


def _recorded(files: Files) -> tuple[RunRecord | None, str]:
    """The record of the folder; or why there is none, which must not hide how the command ended."""
    try:
        return record([str(files.folder)]), ""
    except InvalidInput as error:
        return None, str(error)


def _relayed(asked: Request, held: Held, files: Files, say: Callable[[str], None]) -> tuple[int, Sampler]:
    """Exit code of the command, and the sampler that has sampled it."""
    metrics, exposition = files.folder / METRICS, Exposition()

    def take(sample: Sample) -> None:
        files.sample(sample)
        exposition.update(sample, metrics)

    try:
        command = Command(asked.words, held)
    except InvalidInput:
        files.remove()
        raise
    if asked.port is not None:
        exposition.serve(asked.port)
    with Sampler(command.pid, asked.every_s, take) as sampler:
        command.relay(files.output, say)
    files.close()
    return command.finish(), sampler
