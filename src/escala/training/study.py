"""A scaling study: one job on several numbers of devices, what each took, what is lost and what is ahead.

Knows plans and finished runs; starts none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala import __version__
from escala.calibration import read_rows
from escala.calibration.curves import Curve, nearest
from escala.errors import InvalidInput
from escala.measurement.profile.record import Profile
from escala.model.columns import F64
from escala.model.estimate import estimate
from escala.model.network import Experts
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.rejects import parts_of
from escala.model.scaling import Fit, efficiency, efficiency_ends, fit, serial_share, speedup
from escala.planning.resizing import Case, case_of
from escala.planning.simplicity import describe as title_of
from escala.planning.tuning import Setting, settings
from escala.training.conclude import Trained

SCALE_SCHEMA: Final = "escala/scale@1"
AHEAD: Final = (2, 4)
"""Times the most devices of the study: the next two doublings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One number of devices: what a step took there, and what of it was lost.

    `speedup`, `efficiency` and `serial_share` (Karp-Flatt) are in terms of the first point. The interval is
    that of the quartiles of steps. `communication_share` is exposed messages without waiting for the last
    rank, `waiting_share` that waiting, means over ranks in the traced steps; None where no trace tells.
    """

    devices: int
    plan_title: str
    global_batch: int
    steps: int
    step_s: float
    low_quartile_s: float
    high_quartile_s: float
    samples_per_s: float
    tokens_per_s: float | None
    speedup: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    serial_share: float | None
    communication_share: float | None
    waiting_share: float | None
    predicted_step_s: float
    predicted_low_s: float
    predicted_high_s: float
    predicted_efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """More devices than were run: efficiency by the fit with its 80 % interval, and by the model.

    None where too few points tell it, or where the cluster describes no link so far.
    """

    devices: int
    efficiency: float | None
    efficiency_low: float | None
    efficiency_high: float | None
    predicted_efficiency: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The document of `escala scale`; `published` are curves of the same kind, `unsaid` what is not told.

    `settings` are worth so much on the most devices by the model.
    """

    schema: str
    escala: str
    network: str
    accelerator: str
    is_weak: bool
    is_interrupted: bool
    points: tuple[Point, ...]
    fit: Fit | None
    ahead: tuple[Ahead, ...]
    published: tuple[Curve, ...]
    notes: tuple[str, ...]
    unsaid: tuple[str, ...]
    settings: tuple[Setting, ...] = ()


def scaled(
    cases: Sequence[Case], runs: Sequence[Trained], *, is_weak: bool, notes: tuple[str, ...] = ()
) -> Scaled:
    """The document of the points that ran: the first so many of the cases."""
    unsaid: list[str] = []
    ran = cases[: len(runs)]
    points = _points(ran, runs)
    losses = _fit(points, unsaid, is_weak=is_weak)
    first = cases[0]
    kind = {
        "is_weak": is_weak,
        "has_experts": any(isinstance(part, Experts) for part in parts_of(first.problem)),
        "is_data_parallel": first.plan.tp * first.plan.pp * first.plan.cp == 1,
    }
    return Scaled(
        schema=SCALE_SCHEMA,
        escala=__version__,
        network=first.problem.workload.network.name,
        accelerator=first.problem.accelerator.name,
        is_weak=is_weak,
        is_interrupted=len(runs) < len(cases),
        points=points,
        fit=losses,
        ahead=_ahead(ran, losses, unsaid, is_weak=is_weak) if ran else (),
        published=tuple(nearest(read_rows().rows, **kind, devices=first.devices)),
        notes=notes,
        unsaid=tuple(unsaid),
        settings=tuple(settings(ran[-1].problem, ran[-1].plan)) if ran else (),
    )


def _points(cases: Sequence[Case], runs: Sequence[Trained]) -> tuple[Point, ...]:
    if not runs:
        return ()
    times = [each.run.step for each in runs if each.run is not None and each.run.step is not None]
    assert len(times) == len(runs)
    step_s = np.array([each.median_s for each in times])
    low_s = np.array([each.low_quartile_s for each in times])
    high_s = np.array([each.high_quartile_s for each in times])
    devices = np.array([float(each.devices) for each in cases])
    batches = np.array([float(each.problem.workload.global_batch) for each in cases])
    rates, told = batches / step_s, [estimate(each.problem, Plans.of(each.plan)) for each in cases]
    predicted_s = np.array([float(each.step_s[0]) for each in told])
    found, gain = efficiency(rates, devices), speedup(rates)
    low, high = efficiency_ends(step_s, low_s, high_s, found)
    serial = serial_share(gain, devices / devices[0])
    predicted = efficiency(batches / predicted_s, devices)
    lost = [shares(each.profile) for each in runs]
    return tuple(
        Point(
            devices=each.devices,
            plan_title=title_of(each.plan),
            global_batch=each.problem.workload.global_batch,
            steps=times[row].samples,
            step_s=float(step_s[row]),
            low_quartile_s=float(low_s[row]),
            high_quartile_s=float(high_s[row]),
            samples_per_s=float(rates[row]),
            tokens_per_s=_tokens(each.problem, float(rates[row])),
            speedup=float(gain[row]),
            efficiency=float(found[row]),
            efficiency_low=float(low[row]),
            efficiency_high=float(high[row]),
            serial_share=float(serial[row]) if row else None,
            communication_share=lost[row][0],
            waiting_share=lost[row][1],
            predicted_step_s=float(predicted_s[row]),
            predicted_low_s=float(predicted_s[row] / told[row].interval_ratio[0]),
            predicted_high_s=float(predicted_s[row] * told[row].interval_ratio[0]),
            predicted_efficiency=float(predicted[row]),
        )
        for row, each in enumerate(cases)
    )


def _tokens(problem: Problem, samples_per_s: float) -> float | None:
    work = problem.workload
    return None if work.network.is_image else samples_per_s * work.sequence_tokens


def shares(given: Profile | None) -> tuple[float | None, float | None]:
    """Exposed messages and waiting / step, means over ranks; one rank alone has neither."""
    if given is None:
        return None, None
    exposed = float(np.mean([each.waits.communication_s / each.step_s for each in given.ranks]))
    if len(given.ranks) == 1:
        return exposed, 0.0
    if not given.arrivals:
        return exposed, None
    steps = {each.rank: each.step_s for each in given.ranks}
    waiting = float(np.mean([each.waits_s / steps[each.rank] for each in given.arrivals]))
    waiting = min(waiting, exposed)  # the rest of the waiting is hidden behind work
    return exposed - waiting, waiting


def _column(values: Sequence[float | None]) -> F64 | None:
    known = [each for each in values if each is not None]
    return np.array(known) if len(known) == len(values) else None


def _fit(points: Sequence[Point], unsaid: list[str], *, is_weak: bool) -> Fit | None:
    ratios = np.array([each.devices / points[0].devices for each in points]) if points else np.zeros(0)
    if len(points) < 2:
        unsaid.append("what is lost with more devices: two points are needed at least")
        return None
    communication = _column([each.communication_share for each in points])
    waiting = _column([each.waiting_share for each in points])
    if communication is None:
        unsaid.append("serial work, communication and waiting apart: a point has no trace")
    elif waiting is None:
        unsaid.append("waiting apart from communication: the collectives of ranks do not match")
    if len(points) < 3:
        unsaid.append("how sure the fit is: one step of devices decides it, so it has no interval")
    costs = np.array([1.0 / each.efficiency for each in points])
    return fit(ratios, costs, communication, waiting, is_weak=is_weak)


def _ahead(
    cases: Sequence[Case], losses: Fit | None, unsaid: list[str], *, is_weak: bool
) -> tuple[Ahead, ...]:
    first, last = cases[0], cases[-1]
    devices = [last.devices * times for times in AHEAD]
    ratios = np.array([each / first.devices for each in devices])
    costs = None if losses is None else losses.cost(ratios)
    errors = None if losses is None else losses.cost_error(ratios)
    low, high = (None, None) if costs is None or errors is None else (costs + errors, costs - errors)
    return tuple(
        Ahead(
            devices=count,
            efficiency=None if costs is None else _inverse(float(costs[row])),
            efficiency_low=None if low is None else _inverse(float(low[row])),
            efficiency_high=None if high is None else _inverse(float(high[row])),
            predicted_efficiency=_predicted(first, last, count, unsaid, is_weak=is_weak),
        )
        for row, count in enumerate(devices)
    )


def _inverse(cost: float) -> float | None:
    """Efficiency of a cost; None where the fit leaves no cost at all."""
    return 1.0 / cost if cost > 0 else None


def _predicted(first: Case, last: Case, devices: int, unsaid: list[str], *, is_weak: bool) -> float | None:
    """The model's efficiency there in terms of its own first point."""
    try:
        more = case_of(last.problem, last.plan, devices, is_weak=is_weak)
    except InvalidInput as error:
        unsaid.append(f"the prediction for {devices} devices: {error}")
        return None
    rates = [
        each.problem.workload.global_batch / float(estimate(each.problem, Plans.of(each.plan)).step_s[0])
        for each in (first, more)
    ]
    return float(efficiency(np.array(rates), np.array([float(first.devices), float(devices)]))[1])
