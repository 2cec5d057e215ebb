"""Profile: what a recorded training step does and waits for. Base units; None where no trace says it.

Schema escala/profile@1. `escala profile` writes it. Seconds, bytes, counts and FLOP are those of one step:
the mean over the recorded steps.
"""

from dataclasses import dataclass
from typing import Final

from escala.measurement.job.record import StepRun

PROFILE_SCHEMA: Final = "escala/profile@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The recorded steps: how they were told apart, and the seconds of each on the critical rank."""

    how: str
    count: int
    each_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """A step by phase; the parts add up to the step. `communication_s` is exposed, `idle_s` unexplained.

    On a device these are its own seconds: idle holds the time in which it waits for launches. On a processor
    they are those of its operations, with the time between operations that follow each other at once.
    """

    data_s: float
    forward_s: float
    backward_s: float
    communication_s: float
    optimizer_s: float
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """A step by what it waits for; the parts add up to the step.

    `compute_s` is time in products, `memory_s` in other work, which moves bytes, `launch_s` between and in
    operations too small to work, `communication_s` exposed, `input_s` for data, `idle_s` for what the trace
    does not show.
    """

    compute_s: float
    memory_s: float
    launch_s: float
    communication_s: float
    input_s: float
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Messages of one collective in one process group, on one rank.

    `bus_bytes_per_s` is what the slowest wire of a ring carries: payload * 2 (n - 1) / n of all-reduce,
    (n - 1) / n of gathers and scatters, over the seconds in messages. `exposed_s` is what nothing hides.
    """

    operation: str
    group: str | None
    ranks: int | None
    messages: float
    payload_bytes: float | None
    message_s: float
    exposed_s: float
    bus_bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Pieces of work and their mean seconds, kernels on a device and operations that work on a processor.

    `gap_s` is the mean time between them in which nothing but calling goes on.
    """

    count: float
    mean_s: float
    gap_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most memory of one device; on a processor beyond what was held when recording began."""

    device: str
    allocated_bytes: float
    reserved_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProfile:
    """One rank. `hidden_s` is communication behind other work, `flop` of products with recorded shapes."""

    rank: int
    path: str
    step_s: float
    phases: Phases
    waits: Waits
    message_s: float
    hidden_s: float
    traffic: tuple[Traffic, ...]
    launches: Launches
    memory: tuple[Peak, ...]
    flop: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One rank at the collectives of all: seconds it waits for the last one, seconds it is late.

    Late is after the mean arrival of the others, negative where before, summed over all collectives: lateness
    by chance, now of one rank, now of another, cancels.
    """

    rank: int
    waits_s: float
    late_s: float
    last_times: float
    is_straggler: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """FLOP/s of a rank in its step, beside the device's peak in the format of most of them.

    `hfu` is the share of that peak and counts products that are repeated. `mfu` is a share of the 16-bit
    peak, as everywhere; it needs the work that the network asks for, so it needs a plan.
    """

    flop_per_s: float
    device: str | None
    number_format: str | None
    peak_flop_per_s: float | None
    hfu: float | None
    mfu: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to change, and the share of the step that it could buy at most."""

    what: str
    why: str
    at_most_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the step waits for: `kind` is compute, memory, launch, communication, input, idle or mixed."""

    kind: str
    told: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TermTime:
    """One predicted term of the step, by the name that `escala explain` gives it."""

    name: str
    title: str
    predicted_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Predicted terms and the measured part that they answer to; None where no trace tells it."""

    part: str
    predicted_s: float
    measured_s: float | None
    error: float | None
    terms: tuple[TermTime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted step of the same plan beside the measured one, with its 80 % interval.

    `axes` are the exposed messages by axis of the plan, where the names of groups tell the axes.
    """

    plan_title: str
    network: str
    step_s: float
    low_s: float
    high_s: float
    error: float
    parts: tuple[Beside, ...]
    axes: tuple[Beside, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One recorded step; `run` is what was measured beside the trace where the step ran here.

    `critical_rank` is the one that waits least for others, so the one that decides.

    `has_device` says that a device's timeline was read. `unsaid` names what the traces do not say.
    """

    schema: str
    escala: str
    device: str | None
    has_device: bool
    backend: str | None
    run_ranks: int | None
    steps: Steps
    critical_rank: int
    ranks: tuple[RankProfile, ...]
    arrivals: tuple[Arrival, ...]
    speed: Speed | None
    verdict: Verdict
    predicted: Prediction | None
    unsaid: tuple[str, ...]
    notes: tuple[str, ...]
    run: StepRun | None = None

    @property
    def critical(self) -> RankProfile:
        """The rank that decides the step."""
        return next(each for each in self.ranks if each.rank == self.critical_rank)
