"""The half of `escala profile` that runs a step here: its options, and what they ask for."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from escala.cli.options import Whole, Word, stacked, switch
from escala.cli.output import note, progressing, quiet, show, stdout_kept
from escala.errors import InvalidInput

if TYPE_CHECKING:
    from escala.measurement.job.predict import Asked
    from escala.measurement.job.request import StepRequest
    from escala.report.step_view import Ran

INTERRUPTED = 130
# Options of a step that traces do not take, and of a config that a function does not take.
OF_STEPS = (
    "device",
    "micro_batch",
    "seq",
    "precision",
    "recompute",
    "model",
    "what_if",
    "keep_traces",
    "save_plan",
)
OF_CONFIGS = ("micro_batch", "recompute")
WRITTEN = ("out", "save_plan")
step_options = stacked(
    click.option("--device", metavar="NAME", help="cuda or cpu; cuda where there is one."),
    click.option("--micro-batch", type=Whole(1, 1_000_000), help="Samples of a batch on each rank.  [1]"),
    click.option("--seq", type=Whole(1, 100_000_000), help="Tokens of a sample.  [512]"),
    click.option(
        "--precision", type=Word(), metavar="NAME", help="fp32, tf32 or bf16.  [bf16 on cuda, else fp32]"
    ),
    switch("--recompute/--no-recompute", help="Run layers again in backward."),
    click.option("--model", metavar="NAME|FILE", help="Network that a function trains, to predict its step."),
    click.option(
        "--engine",
        default="pytorch",
        metavar="NAME",
        show_default=True,
        help="Software that the prediction is for.",
    ),
    click.option(
        "--steps", type=Whole(1, 10_000), default=8, show_default=True, help="Steps to time, unobserved."
    ),
    click.option("--what-if", metavar="LIST", help="Practices to try: amp,compile,... or all."),
    click.option(
        "--rounds", type=Whole(1, 1000), default=8, show_default=True, help="Turns of each practice."
    ),
    click.option("--keep-traces", metavar="DIR", help="Folder that keeps the traces and samples."),
    click.option("--save-plan", metavar="FILE", help="Write the plan of the step, for escala calibrate."),
)


def refuse_step_options(given: Mapping[str, Any]) -> None:
    """Refuse options of a step where traces are read."""
    _refuse(OF_STEPS, given, "goes with a function or a network that is run here, not with traces")


def profile_step(target: str, given: Mapping[str, Any], as_json: bool) -> int:
    """Run a step, show and write its profile; the first rank alone tells it."""
    from escala.measurement.bench.request import is_first, refuse_unwritable_file
    from escala.measurement.job.request import require_torch

    if given["plan"] is not None:
        raise InvalidInput("--plan goes with traces; a step that runs here has its own plan: give --cluster")
    for name in WRITTEN:
        if given[name] is not None:
            refuse_unwritable_file(Path(given[name]), f"--{name.replace('_', '-')}")
    require_torch()
    keys = _keys(target, given)
    with _folder(given["keep_traces"] if is_first() else None) as folder:
        asked = _asked(target, given)  # reads the cores, before torch is loaded and binds its threads
        request = _request(target, given, folder, keys)
        with stdout_kept(), progressing() if is_first() else nullcontext(quiet) as progress:
            from escala.report.step_view import profiled_step

            ran = profiled_step(request, asked, progress)
    return 0 if ran is None else _told(ran, given, as_json)


def _told(ran: "Ran", given: Mapping[str, Any], as_json: bool) -> int:
    """Write what was asked for, and show the profile."""
    from escala.report.profile_text import print_profile
    from escala.report.profile_view import save_profile
    from escala.report.step_view import save_planned

    document, (out, plan) = ran.profile, [given[name] for name in WRITTEN]
    if out is not None:
        save_profile(document, out)
        note(f"wrote {out}")
    if plan is not None and ran.planned is not None:
        save_planned(ran.planned, plan)
    if plan is not None:
        note(f"did not write {plan}: there is no prediction" if ran.planned is None else f"wrote {plan}")
    show(document, as_json, print_profile)
    return INTERRUPTED if document.run is not None and document.run.is_interrupted else 0


def _keys(target: str, given: Mapping[str, Any]) -> Mapping[str, object] | None:
    """The config.json of a network, which holds so long a sample; None of a function."""
    from escala.measurement.job.target import names_function
    from escala.report.step_view import config_of, refuse_beyond_context

    if names_function(target):
        return None
    keys = config_of(target)
    refuse_beyond_context(target, keys, given["seq"])
    return keys


def _request(
    target: str, given: Mapping[str, Any], folder: Path, keys: Mapping[str, object] | None
) -> "StepRequest":
    from escala.measurement.bench.device import present_kind
    from escala.measurement.bench.request import checked_kind
    from escala.measurement.job.request import (
        MICRO_BATCH,
        Sizes,
        StepRequest,
        checked_practices,
        checked_precision,
    )

    if keys is None:
        _refuse(OF_CONFIGS, given, "goes with a network; a function makes its own batches and model")
    practices = checked_practices(given["what_if"])
    kind = present_kind(checked_kind(given["device"]))
    sizes = Sizes(
        micro_batch=given["micro_batch"] or MICRO_BATCH,
        sequence_tokens=given["seq"],
        precision=checked_precision(given["precision"], kind),
        recomputes=given["recompute"],
    )
    return StepRequest(
        target=target,
        kind=kind,
        steps=given["steps"],
        rounds=given["rounds"],
        folder=folder,
        keys=keys,
        sizes=sizes,
        practices=practices,
        moves=given["device"] is not None,
    )


def _asked(target: str, given: Mapping[str, Any]) -> "Asked":
    from escala.cli.question import ranks_of
    from escala.measurement.bench.place import refuse_elsewhere
    from escala.measurement.job.predict import Asked
    from escala.measurement.job.request import launched_ranks
    from escala.report.step_view import network_of

    network, unknown = network_of(target, given["model"])
    cluster = ranks_of(given["gpu"], given["cluster"], launched_ranks())
    if cluster is not None:
        refuse_elsewhere(cluster)
    return Asked(network=network, unknown=unknown, cluster=cluster, engine=given["engine"])


def _refuse(names: tuple[str, ...], given: Mapping[str, Any], why: str) -> None:
    for name in names:
        if given[name] not in (None, False):
            raise InvalidInput(f"--{name.replace('_', '-')} {why}; leave it out")


@contextmanager
def _folder(kept: str | None) -> Iterator[Path]:
    """The folder of the traces: the one to keep, made here, or one that goes at the end."""
    if kept is None:
        with tempfile.TemporaryDirectory() as passing:
            yield Path(passing)
        return
    from escala.measurement.bench.request import make_writable

    folder = Path(kept)
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidInput(f"--keep-traces: {kept} is not empty; name a new folder")
    make_writable(folder, "--keep-traces")
    yield folder
