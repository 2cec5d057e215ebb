"""One number of a log with what it is, and the columns that they are kept in. Knows no format.

Units are base units: seconds, bytes, watts, joules, FLOP/s. A lane is the rank or the device of a number.
"""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite, nan
from typing import Final, NamedTuple

import numpy as np

from escala.measurement.sampling.usage import NodeUsage
from escala.model.columns import F64

MOST_SAMPLES: Final = 2_000_000
"""Numbers that are kept of one file, 24 bytes each; what follows is counted and said."""
LEAST: Final = 1e-12
MOST: Final = 1e30
NO_STEP: Final = -1


class What(StrEnum):
    """What a number of a log is, with its unit as the last part of the name."""

    STEP_S = "step_s"
    CLOCK_S = "clock_s"
    MEAN_STEP_S = "mean_step_s"
    SAMPLES_PER_S = "samples_per_s"
    SAMPLES_PER_S_PER_DEVICE = "samples_per_s_per_device"
    TOKENS_PER_S = "tokens_per_s"
    TOKENS_PER_S_PER_DEVICE = "tokens_per_s_per_device"
    FLOP_PER_S_PER_DEVICE = "flop_per_s_per_device"
    MFU = "mfu"
    ALLOCATED_BYTES = "allocated_bytes"
    RESERVED_BYTES = "reserved_bytes"
    DEVICE_BYTES = "device_bytes"
    POWER_W = "power_w"
    DEVICE_ENERGY_J = "device_energy_j"
    MACHINE_ENERGY_J = "machine_energy_j"
    DEVICES = "devices"
    GLOBAL_BATCH = "global_batch"
    SEQUENCE_TOKENS = "sequence_tokens"


MAY_BE_ZERO: Final = (What.POWER_W, What.CLOCK_S)
COUNTS: Final = (What.DEVICES, What.GLOBAL_BATCH, What.SEQUENCE_TOKENS)
MOST_COUNTED: Final = 1e15


class Sample(NamedTuple):
    """One number; `step` is the optimizer step, `at_s` the clock of the file, where it prints them.

    Of energy, `at_s` is how long it was counted.
    """

    what: What
    value: float
    step: int | None = None
    lane: str = ""
    at_s: float | None = None


Samples = Iterator[Sample]


class Series:
    """The samples of one kind of one lane, in the order of the file."""

    def __init__(self) -> None:
        self._values, self._steps, self._clock = array("d"), array("q"), array("d")

    def __len__(self) -> int:
        """How many samples."""
        return len(self._values)

    def add(self, given: Sample) -> None:
        """Keep one sample."""
        self._values.append(given.value)
        self._steps.append(NO_STEP if given.step is None else given.step)
        self._clock.append(nan if given.at_s is None else given.at_s)

    def extend(self, other: "Series") -> None:
        """Keep the samples of another series after these."""
        self._values += other._values
        self._steps += other._steps
        self._clock += other._clock

    @property
    def values(self) -> F64:
        """The numbers. Shape (n,)."""
        return np.array(self._values, np.float64)

    @property
    def steps(self) -> F64:
        """The optimizer step of each, -1 where none is printed. Shape (n,)."""
        return np.array(self._steps, np.float64)

    @property
    def clock_s(self) -> F64:
        """When each was taken, NaN where the file does not say. Shape (n,)."""
        return np.array(self._clock, np.float64)


@dataclass(slots=True, kw_only=True)
class Gathered:
    """All numbers of one file by kind and lane; `left_out` counts what was not read, by reason.

    `usage` is what the samples of `escala watch` add up to.
    """

    path: str
    tool: str
    is_utc: bool
    left_out: Counter[str] = field(default_factory=Counter)
    series: dict[tuple[What, str], Series] = field(default_factory=dict)
    kept: int = 0
    usage: tuple[NodeUsage, ...] = ()

    def add(self, given: Sample) -> None:
        """Keep one sample, or count why not."""
        fault = self._fault(given)
        if fault:
            self.left_out[fault] += 1
            return
        self.series.setdefault((given.what, given.lane), Series()).add(given)
        self.kept += 1

    def _fault(self, given: Sample) -> str:
        if not isfinite(given.value) or (given.at_s is not None and not isfinite(given.at_s)):
            return "numbers that are not finite"
        if given.value < (0.0 if given.what in MAY_BE_ZERO else LEAST):
            return f"{given.what} that is not above zero"
        if given.value > (MOST_COUNTED if given.what in COUNTS else MOST) or (
            given.step is not None and not 0 <= given.step < 2**62
        ):
            return "numbers beyond any run"
        return f"numbers after the first {MOST_SAMPLES:,}" if self.kept >= MOST_SAMPLES else ""

    def absorb(self, other: "Gathered") -> None:
        """Take over what another file of the same run has."""
        for key, series in other.series.items():
            self.series.setdefault(key, Series()).extend(series)
        self.left_out += other.left_out
        self.kept += other.kept

    def of(self, what: What) -> dict[str, Series]:
        """The series of one kind by lane."""
        return {lane: each for (kind, lane), each in self.series.items() if kind is what}

    def last(self, what: What) -> float | None:
        """The last number of a kind, such as the batch after it was ramped up."""
        found = list(self.of(what).values())
        return float(found[-1].values[-1]) if found else None
