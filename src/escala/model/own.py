"""What a user's own runs made of the numbers of an engine, a device and its links. Data; fits nothing."""

from dataclasses import dataclass
from typing import Final

OWN_SCHEMA: Final = "escala/calibration@1"
ENGINE, ACCELERATOR, OPERATIONS, LINK = "engine", "accelerator", "operations", "link"
OWNERS: Final = (ENGINE, ACCELERATOR, OPERATIONS, LINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNumber:
    """One number: the field of an engine, a device, its timed operations, or a link between such devices."""

    of: str
    name: str
    field: str
    accelerator: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFactor(OwnNumber):
    """The factor that own runs put on a number that was `before`; `sd` is that of the factor's logarithm.

    `share` is what the runs decide of it (the rest is the prior), `is_measured` whether a bench gave the
    number that was before.
    """

    before: float
    factor: float
    sd: float
    share: float
    is_measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSpread:
    """How far off own runs of one stack and regime are when each configuration in turn is left out.

    `error` is the 80 % quantile of the size of the logarithm of predicted / measured.
    """

    engine: str
    accelerator: str
    regime: str
    configurations: int
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRuns:
    """A calibration: what was fitted to which runs, on top of which published fit."""

    schema: str = OWN_SCHEMA
    escala: str
    fit: str
    date: str
    digest: str
    runs: tuple[str, ...]
    machines: tuple[str, ...]
    factor: tuple[OwnFactor, ...]
    spread: tuple[OwnSpread, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One number of a problem that a factor of own runs moved."""

    factor: OwnFactor
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """The calibration that a problem was put under, and the numbers of the problem that it moved."""

    runs: OwnRuns
    moved: tuple[Moved, ...]
