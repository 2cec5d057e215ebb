"""Power samples and their integral, and energy that meters summed. Knows no trainer.

The integral is the trapezoidal rule over the times of the samples, each device on its own.
"""

from collections.abc import Sequence

import numpy as np

from escala.errors import InvalidInput
from escala.measurement.logs.samples import Gathered, Series, What
from escala.measurement.logs.steptimes import Told
from escala.measurement.runrecord import Metered, Power
from escala.model.columns import F64, Bool


def power(files: Sequence[Gathered], run: Told | None) -> Power | None:
    """The power of the first file that has some, of the run alone where both clocks are the same kind."""
    file = next((each for each in files if each.of(What.POWER_W)), None)
    if file is None:
        return None
    lanes = [series for _, series in sorted(file.of(What.POWER_W).items())]
    timed = all(np.isfinite(series.clock_s).all() and len(series) > 1 for series in lanes)
    window = _window(file, run) if timed else None
    kept = [_inside(series, window) for series in lanes]
    if window is not None and any(kind.sum() < 2 for kind in kept):
        _refuse_apart(file, lanes, window)
        window, kept = None, [_inside(series, None) for series in lanes]
    return _power(lanes, kept, timed, window is not None)


def _power(lanes: list[Series], kept: list[Bool], timed: bool, is_run: bool) -> Power:
    samples = sum(int(kind.sum()) for kind in kept)
    if not timed:
        mean = sum(float(series.values.mean()) for series in lanes)
        return Power(
            devices=len(lanes), samples=samples, mean_w=mean, duration_s=None, energy_j=None, is_run=False
        )
    pairs = [_integral(s.clock_s[kind], s.values[kind]) for s, kind in zip(lanes, kept, strict=True)]
    return Power(
        devices=len(lanes),
        samples=samples,
        mean_w=sum(energy_j / lasted_s for energy_j, lasted_s in pairs if lasted_s > 0),
        duration_s=max(lasted_s for _, lasted_s in pairs),
        energy_j=sum(energy_j for energy_j, _ in pairs),
        is_run=is_run,
    )


def _integral(clock_s: F64, watts: F64) -> tuple[float, float]:
    """Joules by the trapezoidal rule, and the seconds they took."""
    order = np.argsort(clock_s, kind="stable")
    clock_s, watts = clock_s[order], watts[order]
    joules = np.sum(np.diff(clock_s) * (watts[:-1] + watts[1:]) / 2)
    return float(joules), float(clock_s[-1] - clock_s[0])


def _window(file: Gathered, run: Told | None) -> tuple[float, float] | None:
    return None if run is None or run.is_utc != file.is_utc else run.window_s


def _inside(series: Series, window: tuple[float, float] | None) -> Bool:
    clock = series.clock_s
    if window is None:
        return np.ones(len(clock), np.bool_)
    return (clock >= window[0]) & (clock <= window[1])


def _refuse_apart(file: Gathered, lanes: list[Series], window: tuple[float, float]) -> None:
    first, last = (end(float(end(series.clock_s)) for series in lanes) for end in (min, max))
    if last < window[0] or first > window[1]:
        raise InvalidInput(
            f"the power samples of {file.path} were taken at another time than the steps; they are of "
            "another run, or of another time zone: record them apart"
        )


def metered(files: Sequence[Gathered]) -> tuple[Metered, ...]:
    """Joules of each file with a meter: the sum over its windows and devices."""
    found = []
    for file in files:
        for what, scope in ((What.DEVICE_ENERGY_J, "devices"), (What.MACHINE_ENERGY_J, "machine")):
            lanes = list(file.of(what).values())
            if lanes:
                lasted = max(float(series.clock_s.sum()) for series in lanes)
                found.append(
                    Metered(
                        tool=file.tool,
                        scope=scope,
                        devices=len(lanes) if scope == "devices" else 0,
                        energy_j=sum(float(series.values.sum()) for series in lanes),
                        duration_s=lasted if np.isfinite(lasted) and lasted > 0 else None,
                    )
                )
    return tuple(found)
