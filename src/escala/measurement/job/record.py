"""What was measured of a step that ran here, as data. Base units; None where it could not be measured."""

from dataclasses import dataclass

from escala.measurement.job.spread import Spread
from escala.measurement.sampling.usage import NodeUsage

SINGLE, DATA, OWN = "single device", "data parallel", "own"
"""How a model is spread over ranks; own is whatever its function made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """Bytes by kind on one rank at the moment when one step held most."""

    parameters_bytes: float
    buffers_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    temporary_bytes: float
    other_bytes: float
    peak_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One practice beside the plain step, or the plain step itself (`practice` is "plain").

    `step_s` are means of turns of the slowest rank; `gain` is plain / practice of the same round, above 1
    where the practice is faster. `verdict` is faster, slower, within the noise, undecided (fewer than six
    rounds), or failed; then `why` says what went wrong. `loss` is that of one batch at the same weights.
    """

    practice: str
    title: str
    verdict: str
    why: str = ""
    step_s: Spread | None = None
    gain: Spread | None = None
    rate_per_s: Spread | None = None
    peak_bytes: float | None = None
    loss: float | None = None
    loss_change: float | None = None
    first_step_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What each practice buys on this job: `rounds` in turn, `steps` timed in each turn; `unit` of rates."""

    rounds: int
    steps: int
    unit: str
    plain: Tried
    tried: tuple[Tried, ...]
    is_interrupted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A step that ran here: what, where, how long without any observer, FLOP, memory, what practices buy.

    `parallelism` is single device, data parallel or own; `recomputes` is seen of transformers models only.
    `model`, `parameters`, `optimizer`, `samples` and `tokens` (of one batch of one rank) are None where the
    job does not show them. Times are of the slowest rank, memory of the fullest, FLOP and rate of all ranks
    together; `unit` is tokens or samples. `usage` was sampled by every rank while the plain step was timed.
    """

    target: str
    device: str
    ranks: int
    threads: int
    parallelism: str
    model: str | None
    parameters: int | None
    optimizer: str | None
    samples: int | None
    tokens: int | None
    precision: str | None
    recomputes: bool
    step_s: Spread
    unit: str
    rate_per_s: float | None
    flop: float | None
    peak_bytes: float | None
    memory: HeldMemory | None
    usage: tuple[NodeUsage, ...]
    what_if: WhatIf | None
    notes: tuple[str, ...]
    is_interrupted: bool
