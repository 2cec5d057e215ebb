"""A step that is run here, from request to document. Measures and predicts nothing itself."""

from escala.errors import EscalaError
from escala.measurement.bench.rounds import Progress
from escala.measurement.job.joined import joined
from escala.measurement.job.predict import Asked, planned
from escala.measurement.job.record import StepRun
from escala.measurement.job.request import StepRequest
from escala.measurement.job.run import run_step
from escala.measurement.profile.analyse import Planned, profile
from escala.measurement.profile.read import read_traces
from escala.measurement.profile.record import Profile


def profiled_step(request: StepRequest, asked: Asked, progress: Progress) -> Profile | None:
    """The profile of a step beside its prediction; None in every rank but the first."""
    run = run_step(request, progress)
    if run is None:
        return None
    plan, why = _planned(asked, run)
    device = None if asked.cluster is None else asked.cluster.accelerator
    return joined(profile(read_traces([str(request.folder)]), device, plan), run, why)


def _planned(asked: Asked, run: StepRun) -> tuple[Planned | None, str]:
    """The run as a plan, or why there is none: a step that ran is shown all the same."""
    try:
        return planned(asked, run), ""
    except EscalaError as error:
        return None, str(error)
