"""A run beside its plan as measured times: of the step, and of its parts where a profile tells them apart."""

from dataclasses import replace
from typing import Final

from escala.calibration.own import OwnRun
from escala.errors import InvalidInput
from escala.measurement.paired import Paired
from escala.measurement.profile.predicted import COMMUNICATION, NOT_MODELLED, PARTS, WAITING, beside
from escala.measurement.profile.record import Profile
from escala.measurement.runrecord import RunRecord
from escala.measurement.verify import MEAN

WHOLE_RUN_TRUST: Final = 0.6  # of a step that is the mean of a run with its warm-up, as of a row with a gap
LEAST_SHARE: Final = 0.01  # of the step, below which a part is noise


def timed(given: Paired) -> list[OwnRun]:
    """Every measured time of a run, the step first."""
    return _profiled(given, given.run) if isinstance(given.run, Profile) else [_recorded(given, given.run)]


def _recorded(given: Paired, run: RunRecord) -> OwnRun:
    if run.step is None:
        raise InvalidInput(
            f"{given.name} has no step time, so nothing can be fitted to it; leave it out,"
            " or record logs that say one"
        )
    return OwnRun(
        name=given.name,
        problem=given.problem,
        plan=given.plan,
        seconds=run.step.median_s,
        trust=WHOLE_RUN_TRUST if run.step.how == MEAN else 1.0,
    )


def _profiled(given: Paired, run: Profile) -> list[OwnRun]:
    """Parts that count as their share of the step, and the step as their sum, which counts no more."""
    devices = given.problem.cluster.devices
    if run.run_ranks is not None and run.run_ranks != devices:
        raise InvalidInput(
            f"the profile {given.name} is of {run.run_ranks:,} ranks and the plan of {devices:,} devices;"
            " give the plan of this run"
        )
    parts = _parts(given, run)
    step_s = sum(seconds for seconds, _ in parts.values())
    if step_s <= 0.0:
        raise InvalidInput(f"{given.name} shows no time in any part that a plan has; profile a training step")
    step = OwnRun(name=given.name, problem=given.problem, plan=given.plan, seconds=step_s, trust=0.0)
    told = {name: part for name, part in parts.items() if part[0] > LEAST_SHARE * step_s and part[1]}
    told_s = sum(seconds for seconds, _ in told.values())
    return [
        step,
        *(
            replace(step, seconds=seconds, part=name, terms=terms, trust=seconds / told_s)
            for name, (seconds, terms) in told.items()
        ),
    ]


def _parts(given: Paired, run: Profile) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Measured seconds and predicted terms of each part; data and idle time, which no plan has, are left out.

    Where the trace cannot tell waiting from communication both are one part.
    """
    planned = (given.problem, given.plan)
    found = beside(planned, run.critical, run.arrivals, has_device=run.has_device)
    seconds = {each.part: each.measured_s for each in found.parts if each.part != NOT_MODELLED}
    predicted_s = {each.part: each.predicted_s for each in found.parts}
    terms = dict(PARTS)
    if seconds[WAITING] is None:
        terms[COMMUNICATION] = (*PARTS[COMMUNICATION], *PARTS[WAITING])
        predicted_s[COMMUNICATION] += predicted_s[WAITING]
    return {
        name: (value, terms[name] if predicted_s[name] > 0.0 else ())
        for name, value in seconds.items()
        if value is not None
    }
