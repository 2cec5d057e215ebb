"""RunRecord: what the logs of one run say, as data. Base units; None where no log says it.

Schema escala/run@1. `escala record` writes it, `escala verify` reads it.
"""

from dataclasses import dataclass
from typing import Final

from escala.measurement.sampling.usage import NodeUsage

RUN_SCHEMA: Final = "escala/run@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One file that was read: the tool that wrote it, numbers taken from it, what was left out by reason."""

    path: str
    tool: str
    numbers: int
    left_out: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of a step after warm-up, of the slowest rank: median and quartiles over the samples.

    `how` is "logged" (the tool printed seconds), "clock" (differences of the log's clock over the steps
    between) or "mean of the run" (nothing else is logged; warm-up is inside). A sample is what the tool
    prints at once: the mean over its log interval.
    """

    how: str
    median_s: float
    low_quartile_s: float
    high_quartile_s: float
    samples: int
    warmup_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """The median of one rank; a straggler takes 5 % more than the median rank."""

    rank: str
    median_s: float
    is_straggler: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A rate: the median of what was logged after warm-up, or derived from batch and step time."""

    value: float
    samples: int
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest memory of a device by counter: allocated, reserved (PyTorch) or device (the driver)."""

    counter: str
    peak_bytes: float
    lane: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Power samples: watts of all sampled devices together, and their integral over the time sampled.

    `energy_j` and `duration_s` are None where the samples have no time. `is_run` says whether only samples
    between the first step after warm-up and the last step count.
    """

    devices: int
    samples: int
    mean_w: float
    duration_s: float | None
    energy_j: float | None
    is_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """Energy that a meter summed: of `devices` GPUs, or of the machine as far as the meter sees it (0)."""

    tool: str
    scope: str
    devices: int
    energy_j: float
    duration_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as its logs tell it; `unsaid` names what they do not say, `notes` what reading decided.

    `usage` is of each node that `escala watch` sampled.
    """

    schema: str
    escala: str
    sources: tuple[LogFile, ...]
    began: str | None
    ended: str | None
    last_step: int | None
    step: StepTimes | None
    ranks: tuple[RankTime, ...]
    tokens_per_s: Figure | None
    tokens_per_s_per_device: Figure | None
    samples_per_s: Figure | None
    samples_per_s_per_device: Figure | None
    flop_per_s_per_device: Figure | None
    mfu: Figure | None
    memory: tuple[Peak, ...]
    power: Power | None
    metered: tuple[Metered, ...]
    devices: int | None
    global_batch: int | None
    sequence_tokens: int | None
    unsaid: tuple[str, ...]
    notes: tuple[str, ...]
    usage: tuple[NodeUsage, ...] = ()
