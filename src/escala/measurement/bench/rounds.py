"""Rounds over all probes until the budget is spent or a person stops them. Knows no probe in particular.

Rounds, not one long look at each thing: a burst of other work on the machine then spoils a round of every
probe and the best of all rounds stands, and whatever is there when the bench is stopped is of use.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from escala.errors import one_line
from escala.measurement.bench.probe import Probe
from escala.measurement.bench.ranks import Ranks
from escala.measurement.bench.samples import Subject, held

Progress = Callable[[str, float], None]
RUN, OVER, INTERRUPTED, LOST = "", "over", "interrupted", "lost"
_CODES: Final = (RUN, OVER, INTERRUPTED)
ONCE_S: Final = 1.0
"""Ctrl-C under torchrun comes twice at once: from the terminal, and handed on by the launcher."""


@dataclass(slots=True)
class Stop:
    """Whether a person asked to stop; a second time, later than `ONCE_S`, ends the program at once."""

    asked_s: float | None = None

    @property
    def is_asked(self) -> bool:
        """Whether anybody asked."""
        return self.asked_s is not None

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Take the first signal as a wish, a later one as an order."""
        now_s = time.monotonic()
        if self.asked_s is not None and now_s > self.asked_s + ONCE_S:
            raise KeyboardInterrupt
        self.asked_s = now_s if self.asked_s is None else self.asked_s


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM ask to stop while this lasts; in a thread nobody can."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True, kw_only=True)
class Found:
    """What one rank has measured so far: samples and subjects by name, rounds, why things are missing."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)
    rounds: int = 0
    end: str = RUN
    skips: dict[str, str] = field(default_factory=dict)


def run_rounds(
    probes: Sequence[Probe], ranks: Ranks, deadline_s: float, stop: Stop, progress: Progress
) -> Found:
    """Samples of every probe, in rounds, up to a reading of the monotonic clock; all ranks end together."""
    found = Found()
    try:
        while not found.end:
            for probe in probes:
                found.end = _decision(ranks, deadline_s - probe.last_s, stop)
                if found.end:
                    break
                progress(_title(probe, found.rounds), deadline_s - time.perf_counter())
                _try(probe, ranks, found)
            found.rounds += not found.end
    except RuntimeError as error:  # a rank has gone, so nobody can decide any more
        found.end, found.skips["further rounds"] = LOST, f"a rank was lost: {reason(error)}"
    return found


def _decision(ranks: Ranks, deadline_s: float, stop: Stop) -> str:
    """What all ranks do next: the most urgent wish of any; what would end too late is not begun."""
    mine = 2 if stop.is_asked else int(time.perf_counter() > deadline_s)
    return _CODES[int(ranks.most(float(mine)))]


def _try(probe: Probe, ranks: Ranks, found: Found) -> None:
    """One round of one probe; what device or backend cannot do is skipped from then on, with its reason."""
    if probe.subjects[0].name in found.skips:
        return
    try:
        samples = probe.round(ranks)
    except (RuntimeError, NotImplementedError, OSError, ValueError) as error:
        found.skips.update({subject.name: reason(error) for subject in probe.subjects})
        return
    for subject, column in zip(probe.subjects, zip(*samples, strict=True), strict=bool(samples)):
        found.subjects[subject.name] = subject
        found.samples[subject.name] = held(found.samples.get(subject.name, []), column)


def _title(probe: Probe, rounds: int) -> str:
    return f"round {rounds + 1}: {probe.subjects[0].name}"


def reason(error: Exception) -> str:
    """The first line of what torch says."""
    return one_line(str(error).strip().partition("\n")[0] or type(error).__name__, 200)
