"""`verify`: what a plan was predicted to take beside what its run recorded. Predicts by the model, no fit.

Energy is that of the devices alone: the prediction without node ratio and PUE, which no device counter sees.
"""

from dataclasses import dataclass
from typing import Final

from escala import __version__
from escala.catalog.ranges import assumption_ends
from escala.errors import InvalidInput
from escala.measurement.runrecord import Figure, Metered, Power, RunRecord
from escala.model.energy import device_energy_j, energy_factors
from escala.model.estimate import Estimate, estimate
from escala.model.own_numbers import own_words
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import Reject, describe
from escala.planning.simplicity import describe as title_of

VERIFY_SCHEMA: Final = "escala/verify@1"
MEAN: Final = "mean of the run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One quantity: predicted with its 80 % interval, recorded, predicted / recorded - 1, inside or not."""

    quantity: str
    unit: str
    predicted: float
    low: float
    high: float
    recorded: float
    error: float
    is_inside: bool
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The document of `escala verify --json`; `missing` says which quantities cannot be compared, and why.

    `own` says which numbers of the prediction own runs had moved.
    """

    schema: str
    escala: str
    run: tuple[str, ...]
    plan_title: str
    network: str
    accelerator: str
    devices: int
    compared: tuple[Compared, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    own: tuple[str, ...] = ()


def verify(run: RunRecord, problem: Problem, plan: Plan) -> Verified:
    """The quantities that a run recorded, each beside its prediction for the plan."""
    _refuse_different(run, problem)
    result = estimate(problem, Plans.of(plan))
    broken = int(result.reject[0]) & ~int(Reject.MEMORY)
    if broken:
        raise InvalidInput(f"the plan cannot be run ({', '.join(describe(broken))}); give that of the run")
    found = {
        "step time": _step(run, result),
        "rate": _rate(run, problem, result),
        "memory": _memory(run, problem, result),
        "energy": _energy(run, problem, result),
    }
    return Verified(
        schema=VERIFY_SCHEMA,
        escala=__version__,
        run=tuple(each.path for each in run.sources),
        plan_title=title_of(plan),
        network=problem.workload.network.name,
        accelerator=problem.accelerator.name,
        devices=problem.cluster.devices,
        compared=tuple(each for rows in found.values() for each in rows),
        missing=tuple(f"{name}: {_why(name, run, problem)}" for name, rows in found.items() if not rows),
        notes=_notes(run, problem),
        own=own_words(problem),
    )


def _refuse_different(run: RunRecord, problem: Problem) -> None:
    work = problem.workload
    tokens = None if work.network.is_image else work.sequence_tokens
    for what, recorded, planned in (
        ("devices", run.devices, problem.cluster.devices),
        ("samples in a global batch", run.global_batch, work.global_batch),
        ("tokens in a sequence", run.sequence_tokens, tokens),
    ):
        if recorded is not None and planned is not None and recorded != planned:
            raise InvalidInput(
                f"the run has {recorded:,} {what} and the plan {planned:,}; give the plan of this run"
            )


def _compared(
    quantity: str, unit: str, ends: tuple[float, float, float], recorded: float, origin: str
) -> Compared:
    low, predicted, high = ends
    if recorded <= 0:
        raise InvalidInput(f"the recorded {quantity} is {recorded:g}; it has to be above zero")
    return Compared(
        quantity=quantity,
        unit=unit,
        predicted=predicted,
        low=low,
        high=high,
        recorded=recorded,
        error=predicted / recorded - 1.0,
        is_inside=low <= recorded <= high,
        origin=origin,
    )


def _times(value: float, result: Estimate) -> tuple[float, float, float]:
    """Low end, value and high end of what grows or falls with the step time."""
    ratio = float(result.interval_ratio[0])
    return value / ratio, value, value * ratio


def _step(run: RunRecord, result: Estimate) -> list[Compared]:
    if run.step is None:
        return []
    ends = _times(float(result.step_s[0]), result)
    return [_compared("step time", "s", ends, run.step.median_s, run.step.how)]


def _rate(run: RunRecord, problem: Problem, result: Estimate) -> list[Compared]:
    """Tokens in a second of all devices; samples where nothing says tokens, or the network reads images."""
    work, devices = problem.workload, problem.cluster.devices
    samples_per_s = work.global_batch / float(result.step_s[0])
    tokens = _whole(run.tokens_per_s, run.tokens_per_s_per_device, devices)
    if tokens is not None and not work.network.is_image:
        ends = _times(samples_per_s * work.sequence_tokens, result)
        return [_compared("rate", "tokens/s", ends, *tokens)]
    samples = _whole(run.samples_per_s, run.samples_per_s_per_device, devices)
    return (
        [] if samples is None else [_compared("rate", "samples/s", _times(samples_per_s, result), *samples)]
    )


def _whole(whole: Figure | None, share: Figure | None, devices: int) -> tuple[float, str] | None:
    """The rate of all devices, and where it comes from."""
    if whole is not None:
        return whole.value, whole.origin
    return None if share is None else (share.value * devices, f"{share.origin}, a device × {devices}")


def _memory(run: RunRecord, problem: Problem, result: Estimate) -> list[Compared]:
    known, rows = problem.assumptions, []
    predicted = {
        "allocated": result.memory.allocated_bytes,
        "reserved": result.memory.reserved_bytes,
        "device": result.memory.device_bytes,
    }
    for peak in run.memory:
        if peak.counter not in predicted:
            raise InvalidInput(
                f"memory counter '{peak.counter}' is unknown; there are {', '.join(predicted)}"
            )
        value = float(predicted[peak.counter][0])
        ends = value * known.memory_interval_low, value, value * known.memory_interval_high
        rows.append(_compared(f"memory, {peak.counter}", "bytes", ends, peak.peak_bytes, peak.lane))
    return rows


def _energy(run: RunRecord, problem: Problem, result: Estimate) -> list[Compared]:
    """Joules of all devices in a step: mean power * step time."""
    energy = device_energy_j(problem, result.plans, result.time)
    drawn = _drawn_w(run, problem.cluster.devices)
    if energy is None or drawn is None or run.step is None:
        return []
    low, high = energy_factors(problem, result.time, result.interval_ratio, assumption_ends())
    value = float(energy[0])
    ends = value * float(low[0]), value, value * float(high[0])
    return [_compared("energy of a step", "J", ends, drawn[0] * run.step.median_s, drawn[1])]


def _drawn_w(run: RunRecord, devices: int) -> tuple[float, str] | None:
    """Mean power of all devices; where fewer were sampled, the others are taken to draw the same."""
    power = _sampled(run.power) or next(filter(None, map(_summed, run.metered)), None)
    if power is None or not 0 < power[1] <= devices:
        return None
    drawn_w, seen, tool = power
    return drawn_w * devices / seen, f"{tool} of {seen} device{'s' * (seen > 1)}"


def _sampled(given: Power | None) -> tuple[float, int, str] | None:
    return None if given is None else (given.mean_w, given.devices, "power samples")


def _summed(given: Metered) -> tuple[float, int, str] | None:
    if given.scope != "devices" or not given.duration_s:
        return None
    return given.energy_j / given.duration_s, given.devices, given.tool


def _why(name: str, run: RunRecord, problem: Problem) -> str:
    """Why a quantity cannot be compared."""
    if name != "energy" or (run.power is None and not run.metered):
        return "not in the logs"
    if problem.accelerator.power_w is None:
        return f"the power of {problem.accelerator.name} is not published"
    if run.step is None:
        return "the logs have no step time"
    seen = max([each.devices for each in run.metered] + ([run.power.devices] if run.power else []))
    if seen > problem.cluster.devices:
        return f"power of {seen} devices, and the plan has {problem.cluster.devices}"
    return "what is metered is not the devices alone"


def _notes(run: RunRecord, problem: Problem) -> tuple[str, ...]:
    notes = []
    if run.step is not None and run.step.how == MEAN:
        notes.append("the recorded step is the mean over the whole run, with start and warm-up")
    if run.power is not None and not run.power.is_run:
        notes.append("power samples before and after the run could not be told from those in it")
    seen = run.power.devices if run.power is not None else problem.cluster.devices
    if seen < problem.cluster.devices:
        notes.append(
            f"power of {seen} of {problem.cluster.devices} devices: the others are taken to draw the same"
        )
    silent = [
        name
        for name, value in (("devices", run.devices), ("global batch", run.global_batch))
        if value is None
    ]
    if silent:
        notes.append(
            f"the logs do not say {' and '.join(silent)}; that the plan is of this run is taken on trust"
        )
    place = problem.cluster.place
    if place is not None:
        notes.append(
            f"predicted for the machine that was measured, {place.processor}; logs do not name theirs"
        )
    return tuple(notes)
