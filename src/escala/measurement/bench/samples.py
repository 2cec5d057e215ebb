"""Samples of one rank while the rounds go on, and what is kept of them. Knows no clock and no device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from escala.formats.bench_record import Timed
from escala.measurement.bench.fits import near_mean

MOST_SAMPLES: Final = 32
MOST_HELD: Final = 2000
Best = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is timed: part, name, and the work of one call."""

    part: str
    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    level: str = ""
    operation: str = ""
    ranks: int = 1
    flop: float | None = None
    payload_bytes: float | None = None


def thinned(samples: Sequence[float], most: int = MOST_SAMPLES) -> tuple[float, ...]:
    """At most so many samples, evenly spread over time, the least among them."""
    if len(samples) <= most:
        return tuple(samples)
    kept = [samples[i * len(samples) // most] for i in range(most)]
    least = min(samples)
    return tuple(kept) if least in kept else (least, *kept[1:])


def held(samples: list[float], more: Sequence[float]) -> list[float]:
    """Both together; where they are too many, every second one, and the least."""
    every = [*samples, *more]
    return every if len(every) <= MOST_HELD else [min(every), *every[1::2]]


def slowest(bests: Sequence[Best]) -> dict[str, int]:
    """For every name the rank whose best is slowest."""
    names = dict.fromkeys(name for each in bests for name in each)
    return {name: max(range(len(bests)), key=lambda rank: bests[rank].get(name, 0.0)) for name in names}


def timed(subject: Subject, samples: Sequence[float], rank: int, fastest_s: float) -> Timed:
    """The record of one subject: best, median and typical, rates of the best, samples thinned."""
    best = min(samples)
    return Timed(
        part=subject.part,
        name=subject.name,
        dtype=subject.dtype,
        shape=subject.shape,
        level=subject.level,
        ranks=subject.ranks,
        flop=subject.flop,
        payload_bytes=subject.payload_bytes,
        best_s=best,
        median_s=median(samples),
        repeats=len(samples),
        samples_s=thinned(samples),
        slowest_rank=rank,
        fastest_best_s=fastest_s,
        flop_per_s=None if subject.flop is None else subject.flop / best,
        bytes_per_s=None if subject.payload_bytes is None else subject.payload_bytes / best,
        typical_s=near_mean(samples),
    )
