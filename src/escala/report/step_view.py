"""A step that is run here, from request to document. Measures and predicts nothing itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from escala.catalog.families import context_of
from escala.errors import EscalaError, InvalidInput, one_line
from escala.formats.hf import FILE_NAME
from escala.formats.networks import HUB_PREFIX, find_config, find_network
from escala.inputs import refuse_locked
from escala.measurement.bench.place import software_differences
from escala.measurement.bench.rounds import Progress
from escala.measurement.job.joined import joined
from escala.measurement.job.predict import Asked, planned
from escala.measurement.job.record import StepRun
from escala.measurement.job.request import StepRequest
from escala.measurement.job.target import PYTHON, SEPARATOR, names_function
from escala.measurement.profile.analyse import Planned, profile
from escala.measurement.profile.read import ENDINGS, read_traces
from escala.measurement.profile.record import Profile
from escala.model.network import Network
from escala.report.planfile import PlanFile, write_plan

OTHER_PRECISION: Final = "--precision says another, which a function does not show"
HEAD_BYTES: Final = 65_536
EVENTS: Final = b'"traceEvents"'
CONFIG_KEYS: Final = (b'"model_type"', b'"architectures"')


def runs_here(target: str) -> bool:
    """Whether a target is a function or a network, of which a step is run here; else it is a trace."""
    if names_function(target) or target.startswith(HUB_PREFIX):
        return True
    path = Path(target)
    if path.is_dir():
        refuse_locked(path)
        return (path / FILE_NAME).is_file()
    if path.is_file():
        return path.name == FILE_NAME or _is_config(path)
    return not target.endswith(ENDINGS)


def _is_config(path: Path) -> bool:
    """Whether a file begins like a config.json of a network, not like a trace."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:  # the reader of traces says what is wrong with it
        return False
    return EVENTS not in head and any(key in head for key in CONFIG_KEYS)


def refuse_half_named(targets: tuple[str, ...]) -> None:
    """Refuse half of module:function, and what runs here beside others."""
    for target in targets:
        if target.endswith(PYTHON):
            name = one_line(target)
            raise InvalidInput(f"{name} is a file of Python; name the function in it: {name}:FUNCTION")
        place, mark, function = target.rpartition(SEPARATOR)
        if mark and not Path(target).exists() and not (place and function):
            raise InvalidInput(
                f"'{one_line(target)}' names half a function; write module:function or FILE.py:function"
            )
        if len(targets) > 1 and runs_here(target) and (names_function(target) or Path(target).exists()):
            raise InvalidInput(
                f"{one_line(target)} is run here and goes alone; give one function or network, or traces,"
                " not both"
            )


def refuse_beyond_context(target: str, keys: Mapping[str, object], sequence_tokens: int | None) -> None:
    """Refuse samples that are longer than a network holds."""
    context = context_of(keys, one_line(target))
    if sequence_tokens is not None and context is not None and sequence_tokens > context:
        raise InvalidInput(
            f"--seq {sequence_tokens}: the context of {one_line(target)} is {context:,}; give at most that"
        )


def config_of(target: str) -> Mapping[str, object]:
    """The config.json of a target; what is neither a file nor a network is refused as both."""
    try:
        return find_config(target)
    except InvalidInput as error:
        if Path(target).exists() or target.startswith(HUB_PREFIX):
            raise
        said = f"there is no trace {one_line(target)} here, and no network: {error}"
        raise InvalidInput(f"{said}{_as_function(target)}") from None


def _as_function(target: str) -> str:
    """What to write where a function is named with a dot, as Python does."""
    place, _, function = target.rpartition(".")
    if not place or not all(each.isidentifier() for each in (*place.split("."), function)):
        return ""
    return f"; for a function write {one_line(place)}{SEPARATOR}{one_line(function)}"


def network_of(target: str, model: str | None) -> tuple[Network | None, str]:
    """The network that is trained, or why it is not known; one that --model names wrongly is refused."""
    if model is not None:
        return find_network(model), ""
    if names_function(target):
        return None, "a function does not say which network it trains; name it with --model"
    try:
        return find_network(target), ""
    except EscalaError as error:  # transformers may build what no formula here describes
        return None, str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A step that ran: its profile, and the plan that it followed, where one describes it."""

    profile: Profile
    planned: Planned | None


def save_planned(given: Planned, path: str) -> None:
    """Write the plan that a step followed, as `escala plan` writes plans."""
    write_plan(PlanFile(problem=given.problem, plans=(given.plan,)), Path(path))


def profiled_step(request: StepRequest, asked: Asked, progress: Progress) -> Ran | None:
    """The profile of a step beside its prediction; None in every rank but the first."""
    from escala.measurement.job.run import run_step  # loads torch

    run = run_step(request, progress)
    if run is None:
        return None
    plan, why = _planned(asked, run, request)
    device = None if asked.cluster is None else asked.cluster.accelerator
    run = replace(run, notes=(*run.notes, *_doubts(asked, run, request)))
    found = profile(read_traces([str(request.folder)]), device, plan)
    return Ran(profile=joined(found, run, why), planned=plan)


def _doubts(asked: Asked, run: StepRun, request: StepRequest) -> Iterator[str]:
    """What of the prediction is taken on trust."""
    if asked.cluster is None:
        return
    if run.precision is None and asked.network is not None:
        yield f"predicted in {request.sizes.precision}; {OTHER_PRECISION}"
    if asked.cluster.place is not None:
        yield from software_differences(asked.cluster.place)


def _planned(asked: Asked, run: StepRun, request: StepRequest) -> tuple[Planned | None, str]:
    """The run as a plan, or why there is none: a step that ran is shown all the same."""
    try:
        return planned(asked, run, request.sizes), ""
    except EscalaError as error:
        return None, str(error)
