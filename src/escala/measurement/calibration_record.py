"""What `escala calibrate` answers, as data. Base units; None where no run says it.

Schema escala/calibrate@1. The file of `-o` is `escala.model.own.OwnRuns`.
"""

from dataclasses import dataclass
from typing import Final

from escala.measurement.verify import Compared
from escala.model.own import OwnRuns

CALIBRATE_SCHEMA: Final = "escala/calibrate@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFit:
    """One run: measured seconds of a step, predicted before and after, and by the other runs' numbers alone.

    Errors are predicted / measured - 1. `part` names a part of the step that a profile tells apart, empty for
    the whole. `left_out_s` is None where fewer than three configurations ran; `weight` is what the time
    counts; `is_odd` says that the run fits badly.
    """

    name: str
    part: str
    plan_title: str
    network: str
    engine: str
    accelerator: str
    devices: int
    measured_s: float
    weight: float
    before_s: float
    after_s: float
    left_out_s: float | None
    error_before: float
    error_after: float
    error_left_out: float | None
    is_odd: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFit:
    """One number: its value before and after, and who moved it.

    `moved` is the logarithm of the factor in prior standard deviations, `prior_sd` and `sd` are of that
    logarithm, `share` is what the runs decide. `pulled` names the configurations that moved it most,
    `informed_by` the run that would say more, `is_stopped` that it stands at the end of its range.
    """

    of: str
    name: str
    field: str
    accelerator: str
    before: float
    after: float
    factor: float
    prior_sd: float
    sd: float
    moved: float
    share: float
    pulled: tuple[str, ...]
    is_stopped: bool
    informed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthFit:
    """The factor of the 80 % interval of one stack and regime: from published runs, and with own ones."""

    engine: str
    accelerator: str
    regime: str
    configurations: int
    error: float
    published_ratio: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCheck:
    """A recorded peak beside its prediction, which no run moves."""

    name: str
    compared: Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanErrors:
    """Mean size of the errors of the runs, one vote for each configuration."""

    before: float
    after: float
    left_out: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The document of `escala calibrate --json`; `calibration` is what `-o` writes."""

    schema: str
    escala: str
    configurations: int
    effective_numbers: float
    errors: MeanErrors
    runs: tuple[RunFit, ...]
    numbers: tuple[NumberFit, ...]
    widths: tuple[WidthFit, ...]
    memory: tuple[MemoryCheck, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    calibration: OwnRuns
