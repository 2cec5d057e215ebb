"""One probe: something to do again and again, and its seconds. Knows the clock, no part of the bench."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from escala.measurement.bench.ranks import Ranks
from escala.measurement.bench.samples import Subject

Work = Callable[[], object]
Sample = Callable[[], tuple[float, ...]]
LEAST_SAMPLE_S: Final = 1e-3
LEAST_SHARED_S: Final = 50e-3
"""Of a sample of computation beside other ranks: ranks of one core take turns of some milliseconds, and a
shorter sample would fit between two turns, which no step of training does."""
MOST_CALLS: Final = 1000
LEAST_REPEATS, MOST_REPEATS = 2, 200
SLOW_S: Final = 0.5
"""Of one call from which on once is enough, to warm up and in a round."""
SLICE_S: Final = 0.25
FIRST_SHARE: Final = 0.2
"""Of a slice in the first round, which is to reach everything soon."""


@dataclass(slots=True, kw_only=True)
class Probe:
    """Subjects that one sample times, each in seconds of one call; `make` sets the sample up.

    A joint probe talks to other ranks, so all repeat it equally often; any other runs on all ranks at once,
    as often as each can in its slice. `calls` are those of one sample, for work shorter than a millisecond,
    or than the turns in which ranks share a core; `last_s` is what the last round took.
    One that rests does nothing: every rank has the same probes, so that all go on together.
    `smaller` is the same work with `growth` times fewer bytes: where that tells that one call takes longer
    than `most_s`, the probe is dear and rests too.
    """

    subjects: tuple[Subject, ...]
    make: Callable[["Probe"], Sample]
    is_joint: bool = False
    slice_s: float = SLICE_S
    rests: bool = False
    smaller: "Probe | None" = None
    growth: float = 1.0
    most_s: float = math.inf
    calls: int = 1
    cost_s: float = 0.0
    last_s: float = 0.0
    _sample: Sample | None = field(default=None, repr=False)
    _warmed: list[tuple[float, ...]] = field(default_factory=list, repr=False)

    def round(self, ranks: Ranks) -> list[tuple[float, ...]]:
        """The samples of one round; the first round also warms up and finds how many calls make one."""
        if self.rests or self.is_dear:
            return []
        share, began = 1.0 if self._sample is not None else FIRST_SHARE, time.perf_counter()
        if self._sample is None:
            self._sample = self._warm(self.make(self), ranks)
        repeat = self._equally if self.is_joint else self._freely
        found = [*self._warmed, *repeat(self._sample, share * self.slice_s)]
        self._warmed = []
        self.last_s = time.perf_counter() - began
        return found

    @property
    def is_dear(self) -> bool:
        """Whether one call would take too long, going by the smaller work."""
        return self.expected_s > self.most_s

    @property
    def expected_s(self) -> float:
        """Seconds of one call, going by the smaller work as far as it is known; 0 where there is none."""
        if self.smaller is None:
            return 0.0
        known_s = self.smaller.cost_s / self.smaller.calls
        return self.growth * (known_s or self.smaller.expected_s)

    def _warm(self, sample: Sample, ranks: Ranks) -> Sample:
        agreed_s = self._agreed(sum(sample()), ranks)
        is_cold = self.growth > 1.0 and self.expected_s < SLOW_S  # a first message may open connections
        if agreed_s < SLOW_S or is_cold:
            second = sample()
            agreed_s = self._agreed(sum(second), ranks)
            self._warmed = [second] if agreed_s >= self._least_s(ranks) else []  # long enough to count
        self.calls = max(1, min(MOST_CALLS, round(self._least_s(ranks) / max(agreed_s, 1e-9))))
        self.cost_s = max(agreed_s * self.calls, 1e-9)
        return sample

    def _least_s(self, ranks: Ranks) -> float:
        return LEAST_SAMPLE_S if self.is_joint or ranks.size == 1 else LEAST_SHARED_S

    def _agreed(self, call_s: float, ranks: Ranks) -> float:
        return ranks.most(call_s) if self.is_joint else call_s

    def _equally(self, sample: Sample, slice_s: float) -> list[tuple[float, ...]]:
        least = LEAST_REPEATS if self.cost_s < SLOW_S else 1
        repeats = min(max(least, int(slice_s / self.cost_s)), MOST_REPEATS)
        return [sample() for _ in range(repeats)]

    def _freely(self, sample: Sample, slice_s: float) -> list[tuple[float, ...]]:
        end, found = time.perf_counter() + slice_s, [sample()]
        while time.perf_counter() < end and len(found) < MOST_REPEATS:
            found.append(sample())
        return found


def timing(work: Work, wait: Callable[[], None], *, trips: int = 1) -> Callable[[Probe], Sample]:
    """Seconds of one call of `work`, over as many as the probe wants, or of each of the `trips` in a call."""

    def make(probe: Probe) -> Sample:
        def sample() -> tuple[float, ...]:
            wait()
            began = time.perf_counter()
            for _ in range(probe.calls):
                work()
            wait()
            return ((time.perf_counter() - began) / probe.calls / trips,)

        return sample

    return make


def clocked(work: Work, wait: Callable[[], None]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def no_wait() -> None:
    """A processor's call returns when its work is done."""
