"""What several answers say in the same way: intervals, verdicts, terms, what is assumed or not calibrated."""

from dataclasses import dataclass, fields
from typing import Final

from escala.catalog.fitted import CALIBRATED_ROWS
from escala.model.estimate import Estimate
from escala.model.interval import knows_pair
from escala.model.lengths import useful_row_tokens
from escala.model.memory import Verdict
from escala.model.problem import Problem

VERDICTS: Final = {Verdict.FITS: "fits", Verdict.RISKY: "risky", Verdict.DOES_NOT_FIT: "does not fit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumptionView:
    """A value that nobody gave, and the option that replaces it."""

    name: str
    value: str
    reason: str
    option: str


def tokens_per_step(problem: Problem) -> int:
    """Tokens of one step, without padding; images where the network reads images."""
    work = problem.workload
    row = 1.0 if work.network.is_image else useful_row_tokens(work)
    return round(work.global_batch * row)


def times(value: float, ratio: float) -> Interval:
    """Interval of what grows with the step time: value / ratio to value * ratio."""
    return Interval(value=value, low=value / ratio, high=value * ratio)


def terms(result: Estimate, row: int) -> dict[str, float]:
    """Seconds of one plan's step by term."""
    return {field.name: float(getattr(result.time, field.name)[row]) for field in fields(result.time)}


def calibration_notes(problem: Problem) -> tuple[str, ...]:
    """What published runs did not calibrate, and what stands in its place."""
    engine, chip, further = problem.engine, problem.accelerator, problem.assumptions.interval_chip_ratio
    few = f"fewer than {CALIBRATED_ROWS} published runs"
    pair = f"engine {engine.name} on {chip.architecture}"
    notes = {
        f"engine {engine.name}: {few}; class prior; the interval is that of engines outside the fit": (
            engine.is_calibrated
        ),
        f"{pair}: {few}; the interval is wider, by up to × {further:g}": (
            knows_pair(problem) or not engine.is_calibrated
        ),
        f"device {chip.name}: {few}; the interval is wider, by up to × {further:g}": chip.is_calibrated,
        f"traced modules: no published run; the interval is wider, by up to × {further:g}": (
            not problem.workload.network.is_traced
        ),
    }
    return tuple(note for note, is_calibrated in notes.items() if not is_calibrated)
