"""Traces of one run to a Profile: every rank's step, the rank that decides, its verdict. Reads no file."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala import __version__
from escala.errors import InvalidInput
from escala.formats.bench_cluster import known_device
from escala.measurement.profile.arrivals import arrivals
from escala.measurement.profile.intervals import holds, total_s
from escala.measurement.profile.predicted import beside
from escala.measurement.profile.read import Trace
from escala.measurement.profile.record import (
    PROFILE_SCHEMA,
    Arrival,
    Launches,
    Peak,
    Phases,
    Prediction,
    Profile,
    RankProfile,
    Speed,
    Steps,
    Waits,
)
from escala.measurement.profile.shapes import FORMATS, Product
from escala.measurement.profile.steps import WHOLE, Windows, windows
from escala.measurement.profile.timeline import Timeline, timeline
from escala.measurement.profile.traffic import ranks_of, traffic
from escala.measurement.profile.verdict import verdict
from escala.model.cluster import Accelerator
from escala.model.efficiency import memory_bytes_per_s, peak_flop_per_s
from escala.model.flops import (
    accelerator_peak_flop_per_s,
    model_flop,
    reference_peak_flop_per_s,
    utilisation,
)
from escala.model.plan import Plan
from escala.model.problem import Problem

FEW_STEPS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan that the traced run followed, and the question that it answers."""

    problem: Problem
    plan: Plan


def profile(
    traces: Sequence[Trace], device: Accelerator | None = None, planned: Planned | None = None
) -> Profile:
    """What the step of these traces does and waits for, beside its prediction where a plan is given.

    The device is that of the plan, else the given one, else the one that the trace names, if it is known.
    """
    if planned is not None:
        _refuse_different(traces[0], planned.problem, device)
    chip = planned.problem.accelerator if planned else device or _named(traces[0])
    found = [windows(each.events) for each in traces]
    _refuse_different_steps(traces, found)
    _refuse_no_time(traces, found)
    count = len(found[0].spans)
    ridges = {} if chip is None else _ridges(chip)
    moments = [timeline(each.events, steps, ridges) for each, steps in zip(traces, found, strict=True)]
    ranks = [_rank(each, its, count) for each, its in zip(traces, moments, strict=True)]
    place = int(np.argmin([each.phases.communication_s for each in ranks]))
    critical = ranks[place]
    waited = arrivals(traces, [each.window for each in moments], count, critical.step_s)
    speed = _speed(critical, chip, planned, _usual_format(traces[place], moments[place]))
    return Profile(
        schema=PROFILE_SCHEMA,
        escala=__version__,
        device=traces[0].device if chip is None else chip.name,
        has_device=moments[place].has_device,
        backend=traces[0].backend,
        run_ranks=traces[0].ranks,
        steps=_steps(found[place], count),
        critical_rank=critical.rank,
        ranks=tuple(ranks),
        arrivals=waited,
        speed=speed,
        verdict=verdict(critical, waited, speed),
        predicted=None if planned is None else _predicted(planned, critical, waited, moments[place]),
        unsaid=_unsaid(traces, critical, waited, chip),
        notes=_notes(traces, found[place], moments[place], speed),
    )


def _ridges(chip: Accelerator) -> dict[str, float]:
    """Dense peak of every format / achieved memory speed; the usual peak where the format is not told."""
    peaks = {name: peak_flop_per_s(chip, name) for name in set(FORMATS.values())}
    known = {name: peak for name, peak in peaks.items() if peak is not None}
    usual = {"": accelerator_peak_flop_per_s(chip)}
    return {name: peak / memory_bytes_per_s(chip) for name, peak in (known | usual).items()}


def _refuse_different(trace: Trace, problem: Problem, device: Accelerator | None) -> None:
    if device is not None and device.name != problem.accelerator.name:
        raise InvalidInput(
            f"the device is {device.name} and the plan is for {problem.accelerator.name}; give one of them"
        )
    ranks, devices = trace.ranks or 1, problem.cluster.devices
    if ranks != devices:
        raise InvalidInput(
            f"the traced run has {ranks:,} rank{'s' * (ranks > 1)} and the plan {devices:,} devices; "
            "give the plan of this run"
        )


def _refuse_different_steps(traces: Sequence[Trace], found: Sequence[Windows]) -> None:
    for each, steps in zip(traces[1:], found[1:], strict=True):
        if len(steps.spans) != len(found[0].spans) or steps.numbers != found[0].numbers:
            raise InvalidInput(
                f"{traces[0].path} holds {_told(found[0])} and {each.path} {_told(steps)}; "
                "name traces of the same steps"
            )


def _refuse_no_time(traces: Sequence[Trace], found: Sequence[Windows]) -> None:
    for each, steps in zip(traces, found, strict=True):
        if total_s(steps.window) <= 0:
            raise InvalidInput(f"the steps of {each.path} take no time; profile at least one active step")


def _told(steps: Windows) -> str:
    if steps.numbers:
        return f"steps {steps.numbers[0]} to {steps.numbers[-1]}"
    return f"{len(steps.spans)} step{'s' * (len(steps.spans) > 1)}"


def _named(trace: Trace) -> Accelerator | None:
    return None if trace.device is None else known_device(trace.device)


def _steps(found: Windows, count: int) -> Steps:
    return Steps(how=found.how, count=count, each_s=tuple((found.spans[:, 1] - found.spans[:, 0]).tolist()))


def _rank(trace: Trace, moments: Timeline, steps: int) -> RankProfile:
    exposed_s = total_s(moments.exposed) / steps
    message_s = total_s(moments.messages) / steps
    return RankProfile(
        rank=trace.rank,
        path=trace.path,
        step_s=total_s(moments.window) / steps,
        phases=_phases(moments, exposed_s, steps),
        waits=_waits(moments, exposed_s, steps),
        message_s=message_s,
        hidden_s=message_s - exposed_s,
        traffic=traffic(trace, moments, steps),
        launches=_launches(trace, moments, steps),
        memory=tuple(
            Peak(device=each.device, allocated_bytes=each.allocated_bytes, reserved_bytes=each.reserved_bytes)
            for each in trace.held
        ),
        flop=_flop(trace, moments, steps),
    )


def _phases(moments: Timeline, exposed_s: float, steps: int) -> Phases:
    parts = {f"{name}_s": total_s(spans) / steps for name, spans in moments.phases.items()}
    data_s = total_s(moments.data) / steps
    spent_s = sum(parts.values()) + data_s + exposed_s
    idle_s = max(total_s(moments.window) / steps - spent_s, 0.0)
    return Phases(data_s=data_s, communication_s=exposed_s, idle_s=idle_s, **parts)


def _waits(moments: Timeline, exposed_s: float, steps: int) -> Waits:
    parts = {
        "compute_s": total_s(moments.compute) / steps,
        "memory_s": total_s(moments.memory) / steps,
        "launch_s": total_s(moments.calling) / steps,
        "communication_s": exposed_s,
        "input_s": total_s(moments.data) / steps,
    }
    idle_s = max(total_s(moments.window) / steps - sum(parts.values()), 0.0)
    return Waits(idle_s=idle_s, **parts)


def _launches(trace: Trace, moments: Timeline, steps: int) -> Launches:
    rows = moments.pieces[holds(moments.window, trace.events.start_s[moments.pieces])]
    count = len(rows)
    if count == 0:
        return Launches(count=0.0, mean_s=0.0, gap_s=0.0)
    work_s = total_s(moments.compute) + total_s(moments.memory)
    return Launches(count=count / steps, mean_s=work_s / count, gap_s=total_s(moments.calling) / count)


def _flop(trace: Trace, moments: Timeline, steps: int) -> float | None:
    """FLOP of the products that began in the steps; None where no shapes were recorded."""
    if not trace.events.products:
        return None
    return sum(each.flop for each in _products(trace, moments)) / steps


def _products(trace: Trace, moments: Timeline) -> list[Product]:
    """The products that began in the steps."""
    rows = np.array(list(trace.events.products), np.int64)
    began = holds(moments.window, trace.events.start_s[rows])
    return [each for each, is_in in zip(trace.events.products.values(), began, strict=True) if is_in]


def _usual_format(trace: Trace, moments: Timeline) -> str:
    """The number format in which most FLOP of the steps are done; "" where it is not told."""
    work: defaultdict[str, float] = defaultdict(float)
    for each in _products(trace, moments):
        work[each.number_format] += each.flop
    return max(work, key=lambda name: work[name], default="")


def _speed(
    rank: RankProfile, chip: Accelerator | None, planned: Planned | None, number_format: str
) -> Speed | None:
    if rank.flop is None:
        return None
    peak = None if chip is None or not number_format else peak_flop_per_s(chip, number_format)
    return Speed(
        flop_per_s=rank.flop / rank.step_s,
        device=None if chip is None else chip.name,
        number_format=number_format or None,
        peak_flop_per_s=peak,
        hfu=None if peak is None else _share(rank.flop, rank.step_s, 1, peak),
        mfu=None if planned is None else _mfu(rank.step_s, planned.problem),
    )


def _mfu(step_s: float, problem: Problem) -> float:
    peak = reference_peak_flop_per_s(problem)
    return _share(model_flop(problem.workload), step_s, problem.cluster.devices, peak)


def _share(flop: float, step_s: float, devices: int, peak_flop_per_s: float) -> float:
    return float(utilisation(flop, np.array([step_s]), np.array([float(devices)]), peak_flop_per_s)[0])


def _predicted(
    planned: Planned, rank: RankProfile, waited: Sequence[Arrival], moments: Timeline
) -> Prediction:
    return beside((planned.problem, planned.plan), rank, waited, has_device=moments.has_device)


def _unsaid(
    traces: Sequence[Trace], rank: RankProfile, waited: Sequence[Arrival], chip: Accelerator | None
) -> tuple[str, ...]:
    """What the traces do not tell, and what would make them."""
    ranks, read = traces[0].ranks or 1, len(traces)
    said = {
        "FLOP: no shapes; profile with record_shapes=True": rank.flop is not None,
        "MFU: the peak of the device is not known; give --gpu, --cluster or --plan": (
            rank.flop is None or chip is not None
        ),
        "memory: not recorded; profile with profile_memory=True": bool(rank.memory),
        f"stragglers: {read} of {ranks} ranks read; name the traces of all": ranks == 1 or read == ranks,
        "stragglers: the ranks do not have the same collectives of all ranks, or none": (
            read < 2 or read < ranks or bool(waited)
        ),
    }
    return tuple(text for text, is_said in said.items() if not is_said)


def _notes(
    traces: Sequence[Trace], steps: Windows, moments: Timeline, speed: Speed | None
) -> tuple[str, ...]:
    device = "the device's own" if moments.has_device else "the processor's operations"
    said = {
        f"timeline: {device}": True,
        "one step is too few to see how steps vary": len(steps.spans) == FEW_STEPS and steps.how != WHOLE,
        "the plan's work is more than the device could do in this step: is it the plan of this run?": (
            speed is not None and speed.mfu is not None and speed.mfu > 1
        ),
        "messages do not say their group, and the run has groups of several sizes": any(
            ranks_of(each, traces[0]) is None for each in traces[0].events.messages.values()
        ),
    }
    return tuple(text for text, is_so in said.items() if is_so)
