"""Power samples and their integral, and energy that meters summed. Knows no trainer.

The integral is the trapezoidal rule over the times of the samples, each device on its own.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from escala.errors import InvalidInput
from escala.measurement.logs.samples import Gathered, Series, What
from escala.measurement.logs.steptimes import Told
from escala.measurement.runrecord import Metered, Power
from escala.measurement.sampling.usage import NodeUsage
from escala.model.columns import F64, Bool


def power(files: Sequence[Gathered], run: Told | None) -> Power | None:
    """The power that one tool sampled; of the run alone where its clock is of the kind of the steps'."""
    parts = _sampled(files)
    if not parts:
        return None
    file, lanes = parts[0], _lanes(parts)
    timed = all(np.isfinite(series.clock_s).all() and len(series) > 1 for series in lanes)
    window = _window(file, run) if timed else None
    kept = [_inside(series, window) for series in lanes]
    if window is not None and any(kind.sum() < 2 for kind in kept):
        _refuse_apart(file, lanes, window)
        window, kept = None, [_inside(series, None) for series in lanes]
    return _power(lanes, kept, timed, window is not None)


def unused_power(files: Sequence[Gathered]) -> list[str]:
    """A note for each file whose power is that of another tool than the one that counts."""
    used = _sampled(files)
    others = [each for each in files if each.of(What.POWER_W) and each not in used]
    return [f"power of {each.path} is left out: that of {used[0].path} is taken" for each in others]


def _sampled(files: Sequence[Gathered]) -> list[Gathered]:
    """The files with power of the first tool that has some: one a node, or one after the other."""
    found = [each for each in files if each.of(What.POWER_W)]
    return [each for each in found if each.tool == found[0].tool]


def _lanes(files: list[Gathered]) -> list[Series]:
    """Samples by device: files of the same hours are nodes, later ones go on with the same devices."""
    nodes: list[dict[str, Series]] = []
    for file in sorted(files, key=_begin_s):
        lanes = file.of(What.POWER_W)
        before = next((node for node in nodes if _ends_before(node, lanes)), None)
        if before is None:
            nodes.append(before := {})
        for lane, series in sorted(lanes.items()):
            before.setdefault(lane, Series()).extend(series)
    return [series for node in nodes for series in node.values()]


def _begin_s(file: Gathered) -> float:
    return min(float(series.clock_s[0]) for series in file.of(What.POWER_W).values())


def _ends_before(node: dict[str, Series], lanes: dict[str, Series]) -> bool:
    """Whether the same devices were sampled up to a time before these begin; never without a time."""
    last = max(float(series.clock_s.max()) for series in node.values())
    return set(node) == set(lanes) and all(last < float(series.clock_s.min()) for series in lanes.values())


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
    """Joules of each file with a meter: the sum over its windows and devices, or what counters counted."""
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
        found += [metered for usage in file.usage for metered in _counted(file.tool, usage)]
    return tuple(found)


def _counted(tool: str, usage: NodeUsage) -> Iterator[Metered]:
    """Energy counters of one node: of its GPUs together, and of its processor packages."""
    gpus_j = [each.energy_j for each in usage.gpus if each.energy_j is not None]
    for scope, devices, energies_j in (
        ("devices", len(gpus_j), gpus_j),
        ("processor packages", 0, [usage.packages_energy_j]),
    ):
        known_j = [energy_j for energy_j in energies_j if energy_j is not None]
        if known_j:
            yield Metered(
                tool=tool,
                scope=scope,
                devices=devices,
                energy_j=sum(known_j),
                duration_s=usage.duration_s or None,
            )
