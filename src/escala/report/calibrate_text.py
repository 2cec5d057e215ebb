"""A calibration for people: errors before and after, what moved and who moved it, what no run says."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.measurement.calibrate import INFORMED
from escala.measurement.calibration_record import Calibrated, MemoryCheck, NumberFit, RunFit, WidthFit
from escala.report.layout import (
    QUIET,
    STRONG,
    VERDICT_STYLES,
    apart,
    flow,
    hanging,
    put,
    room,
)
from escala.report.numbers import count, flop_rate, gib, in_percent, plural, seconds
from escala.units import digits, percent, show_seconds, show_si

SHOWN: Final = 0.005  # of a factor's distance from 1: less is told in the document alone
UNUSED: Final = 1e-9  # a number that no run depends on decides nothing, but for rounding
_HEADS: Final = ("before", "after", "left out")
_CELL: Final = 10
_NAME: Final = 56
_SHOW: Final[dict[str, Callable[[float], str]]] = {
    "bytes_per_s": lambda value: show_si(value, "B/s"),
    "pass_bytes_per_s": lambda value: show_si(value, "B/s"),
    "attention_flop_per_s": flop_rate,
    "attention_backward_flop_per_s": flop_rate,
    "latency_s": show_seconds,
    "dispatch_s": show_seconds,
    "launch_s": show_seconds,
    "update_s": show_seconds,
}


def print_calibrated(console: Console, given: Calibrated) -> None:
    """Everything that `escala calibrate` shows."""
    put(console, " · ".join(given.calibration.machines))
    put(console, Text(_summary(given), style=STRONG))
    put(console)
    _print_runs(console, given.runs)
    _print_numbers(console, given)
    for each in given.widths:
        hanging(console, "Width", flow([_width(each)], room(console)))
    hanging(console, "Memory", flow(_memory(given.memory), room(console)))
    hanging(console, "Ask", [line for text in _asked(given.numbers) for line in flow([text], room(console))])
    hanging(console, "Unused", flow(_unused(given.numbers), room(console), ", "))
    risky = VERDICT_STYLES["risky"]
    for warning in given.warnings:
        hanging(console, "Check", flow([Text(warning, style=risky)], room(console)), style=risky)
    for note in given.notes:
        hanging(console, "Note", flow([note], room(console)))


def _summary(given: Calibrated) -> str:
    runs, ran, errors = len(given.calibration.runs), given.configurations, given.errors
    same = "" if runs == ran else f" of {count(ran)} configuration{plural(ran)}"
    left = "" if errors.left_out is None else f", {_size(errors.left_out)} for a run that is left out"
    return (
        f"{count(runs)} run{plural(runs)}{same}: mean error {_size(errors.before)} before,"
        f" {_size(errors.after)} after{left}"
    )


def _size(error: float) -> str:
    return f"{in_percent(error)} %"


def _signed(error: float | None) -> str:
    return "–" if error is None else f"{in_percent(error, '+')} %"


def _print_runs(console: Console, runs: Sequence[RunFit]) -> None:
    apart(console, Text("run", QUIET), Text(_columns("measured", *_HEADS), QUIET), indent=2)
    for each in runs:
        errors = [_signed(e) for e in (each.error_before, each.error_after, each.error_left_out)]
        name = f"  {each.part}" if each.part else one_line(each.name, 200)
        style = VERDICT_STYLES["risky"] if each.is_odd else ""
        apart(console, Text(name, style), Text(_columns(seconds(each.measured_s), *errors)), indent=2)
    put(console)


def _columns(*cells: str) -> str:
    """Cells of equal width, set right."""
    return "".join(f"{cell:>{_CELL}}" for cell in cells)


def _print_numbers(console: Console, given: Calibrated) -> None:
    moved = [each for each in given.numbers if abs(each.factor - 1.0) >= SHOWN or each.share >= INFORMED]
    total = f"The runs decide {given.effective_numbers:.1f} of {len(given.numbers)} numbers"
    put(console, Text(f"{total}; these moved" if moved else f"{total}; none moved", style=STRONG))
    put(console)
    for each in moved:
        right = Text(f"× {each.factor:.3f}, {_sds(each)} prior sd, decided to {percent(each.share)}")
        apart(console, Text(_named(each)), right, indent=2)
        values = f"{_value(each, each.before)} to {_value(each, each.after)}"
        by = f"pulled by {', '.join(one_line(name, _NAME) for name in each.pulled)}"
        for line in flow([Text(text, style=QUIET) for text in (values, by)], room(console)):
            put(console, line, indent=4)
    put(console)


def _named(given: NumberFit) -> str:
    return f"{one_line(given.name, _NAME)} {given.field}"


def _sds(given: NumberFit) -> str:
    return f"{given.moved:+.1f}".replace("-", "−")


def _value(given: NumberFit, value: float) -> str:
    show = _SHOW.get(given.field, digits)
    return show(value)


def _width(given: WidthFit) -> str:
    ran = f"{count(given.configurations)} own configuration{plural(given.configurations)}"
    return (
        f"{given.engine} on {given.accelerator}, {given.regime}: 80 % interval × {given.ratio:.2f},"
        f" from × {given.published_ratio:.2f} of published runs and {ran}"
    )


def _memory(checks: Sequence[MemoryCheck]) -> list[str]:
    """How many recorded peaks their intervals hold, and those that they do not."""
    outside = [each for each in checks if not each.compared.is_inside]
    held = f"{count(len(checks) - len(outside))} of {count(len(checks))} recorded peaks in the 80 % interval"
    return [held, *map(_peak, outside)] if checks else []


def _peak(given: MemoryCheck) -> str:
    row = given.compared
    counter, recorded, predicted = row.quantity.partition(", ")[2], gib(row.recorded), gib(row.predicted)
    return f"{one_line(given.name, _NAME)}: {counter} recorded {recorded} GiB, predicted {predicted} GiB"


def _asked(numbers: Sequence[NumberFit]) -> Iterator[str]:
    """What the runs decide less than a tenth of, by the run that would say more."""
    hints: dict[str, list[str]] = {}
    for each in numbers:
        if UNUSED < each.share < INFORMED:
            hints.setdefault(each.informed_by, []).append(_named(each))
    for hint, names in hints.items():
        yield f"{', '.join(names)} would be informed by {hint}"


def _unused(numbers: Sequence[NumberFit]) -> list[str]:
    return [_named(each) for each in numbers if each.share <= UNUSED]
