"""What every rank uses of its node while the plain step is timed. Knows the sampler, no step."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from escala.measurement.bench.ranks import Ranks
from escala.measurement.sampling.extra import INSTALL
from escala.measurement.sampling.sample import Sample
from escala.measurement.sampling.totals import summed
from escala.measurement.sampling.usage import NodeUsage

EVERY_S: Final = 0.25
"""Steps are timed for seconds; the sampler takes a few milliseconds of one core each time."""
FILE: Final = "samples.jsonl"


@dataclass(slots=True)
class Beside:
    """The samples of this rank, and what could not be sampled."""

    samples: list[Sample] = field(default_factory=list)
    gaps: tuple[str, ...] = ()


@contextmanager
def sampled() -> Iterator[Beside]:
    """Samples of this process, its children and its node while this lasts."""
    found = Beside()
    if importlib.util.find_spec("psutil") is None:
        found.gaps = (f"utilisation was not sampled, psutil is not installed: {INSTALL}",)
        yield found
        return
    from escala.measurement.sampling.sampler import Sampler

    with Sampler(os.getpid(), EVERY_S, found.samples.append) as sampler:
        found.gaps = sampler.gaps
        yield found


def usage(found: Beside, ranks: Ranks, folder: Path) -> tuple[NodeUsage, ...]:
    """The usage by every rank; the first rank writes the samples of all into the folder."""
    every = [each for samples in ranks.gather(found.samples) for each in samples]
    if ranks.rank == 0 and every:
        lines = (msgspec.json.encode(each) for each in every)
        (folder / FILE).write_bytes(b"\n".join(lines) + b"\n")
    return summed(every)
