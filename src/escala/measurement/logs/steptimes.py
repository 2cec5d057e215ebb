"""Step times of one run from its files: which file tells them, warm-up, ranks, stragglers.

Statistics are of what is left after warm-up: the first tenth of the samples, at least one and at most ten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.measurement.logs.samples import LEAST, Gathered, Series, What
from escala.measurement.runrecord import RankTime, StepTimes
from escala.model.columns import F64

STRAGGLER: Final = 1.05
"""A rank that takes this many times the median rank (the faster of two in the middle) is named."""
LOGGED, CLOCK, MEAN = "logged", "clock", "mean of the run"
ORDER: Final = (LOGGED, CLOCK, MEAN)


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """Step times of one rank in order: the step, its seconds, and the clock when it ended. Shapes (n,)."""

    steps: F64
    seconds: F64
    clock_s: F64

    def __len__(self) -> int:
        """How many samples."""
        return len(self.seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """The step times that count: how they were found, the tool that tells them, tracks by rank, warm-up."""

    how: str
    tool: str
    is_utc: bool
    tracks: dict[str, Track]
    warmup: int
    notes: tuple[str, ...]

    @property
    def slowest(self) -> Track:
        """The rank with the largest median."""
        return max(self.tracks.values(), key=lambda each: float(np.median(each.seconds[self.skip(each) :])))

    def skip(self, track: Track) -> int:
        """Samples of a track that are warm-up."""
        return min(self.warmup, len(track) - 1)

    @property
    def window_s(self) -> tuple[float, float] | None:
        """From the end of warm-up to the last step, on the clock of the log."""
        clock = self.slowest.clock_s
        begin, end = clock[max(self.skip(self.slowest) - 1, 0)], clock[-1]
        return (float(begin), float(end)) if np.isfinite(begin) and np.isfinite(end) and end > begin else None


def usual_warmup(samples: int) -> int:
    """A tenth of the samples, at least one and at most ten; none of one or two."""
    return 0 if samples < 3 else min(10, max(1, samples // 10))


def told(files: Sequence[Gathered], warmup: int | None) -> Told | None:
    """The step times of the best file that has some: seconds as logged, else of its clock, else a mean."""
    for how in ORDER:
        found = [(file, tracks) for file in files if (tracks := _tracks(file, how))]
        if found:
            return _told(how, found, warmup, files)
    return None


def _told(
    how: str, found: list[tuple[Gathered, dict[str, Track]]], warmup: int | None, files: Sequence[Gathered]
) -> Told:
    first = found[0][0]
    tracks, notes = _joined([each for each in found if each[0].tool == first.tool])
    others = [file.path for file, _ in found if file.tool != first.tool]
    notes += [f"step times of {each} are left out: those of {first.path} are taken" for each in others]
    samples = min(len(track) for track in tracks.values())
    if warmup is not None and warmup >= samples and how != MEAN:
        raise InvalidInput(f"--warmup {warmup} leaves nothing of {samples} samples of step time; give less")
    skipped = 0 if how == MEAN else usual_warmup(samples) if warmup is None else warmup
    return Told(how, first.tool, first.is_utc, tracks, skipped, tuple(notes))


def _tracks(file: Gathered, how: str) -> dict[str, Track]:
    what = {LOGGED: What.STEP_S, CLOCK: What.CLOCK_S, MEAN: What.MEAN_STEP_S}[how]
    made = {lane: _track(series, how) for lane, series in file.of(what).items()}
    return {lane: track for lane, track in made.items() if len(track)}


def _track(series: Series, how: str) -> Track:
    steps, values, clock = series.steps, series.values, series.clock_s
    if how == LOGGED:
        return Track(steps, values, clock)
    if how == MEAN:
        return Track(steps[-1:], values[-1:], clock[-1:])
    return _differences(steps, values, clock)


def _differences(steps: F64, moments: F64, clock: F64) -> Track:
    """Seconds between records over the steps between them; a restart, where either goes back, is left out."""
    before, after = steps[:-1], steps[1:]
    passed, took = after - before, np.diff(moments)
    forward = (passed > 0) & (took > LEAST)
    return Track(after[forward], took[forward] / passed[forward], clock[1:][forward])


def _joined(found: list[tuple[Gathered, dict[str, Track]]]) -> tuple[dict[str, Track], list[str]]:
    """Files of one tool: those whose steps follow each other are one run in parts, others are ranks."""
    if len(found) == 1:
        return found[0][1], []
    spans = sorted(
        (float(track.steps.min()), float(track.steps.max())) for _, each in found for track in each.values()
    )
    follow = all(len(each) == 1 for _, each in found) and all(
        before[1] < after[0] for before, after in pairwise(spans)
    )
    if follow:
        parts = sorted(
            (next(iter(each.values())) for _, each in found), key=lambda part: float(part.steps[0])
        )
        whole = Track(*(np.concatenate([getattr(part, name) for part in parts]) for name in Track.__slots__))
        return {"": whole}, [f"{len(parts)} files whose steps follow each other are read as one"]
    names = _names([file.path for file, _ in found])
    tracks = {
        f"{names[file.path]} {lane}".strip(): track for file, each in found for lane, track in each.items()
    }
    return tracks, [f"{len(found)} files with the same steps are read as ranks of one run"]


def _names(paths: Sequence[str]) -> Mapping[str, str]:
    short = [Path(path).name for path in paths]
    return {path: path if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)}


def step_times(given: Told) -> StepTimes:
    """Median and quartiles of the slowest rank after warm-up."""
    track, skip = given.slowest, given.skip(given.slowest)
    low, median, high = (float(each) for each in np.percentile(track.seconds[skip:], (25, 50, 75)))
    return StepTimes(
        how=given.how,
        median_s=median,
        low_quartile_s=low,
        high_quartile_s=high,
        samples=len(track) - skip,
        warmup_samples=skip,
    )


def rank_times(given: Told) -> tuple[RankTime, ...]:
    """The median of each rank, the slowest first; nothing where only one is logged."""
    if len(given.tracks) < 2:
        return ()
    medians = {
        rank: float(np.median(track.seconds[given.skip(track) :])) for rank, track in given.tracks.items()
    }
    usual = sorted(medians.values())[(len(medians) - 1) // 2]
    ordered = sorted(medians.items(), key=lambda each: (-each[1], each[0]))
    return tuple(
        RankTime(rank=rank or "the other", median_s=took, is_straggler=took > STRAGGLER * usual)
        for rank, took in ordered
    )
