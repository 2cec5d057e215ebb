"""`escala scale`: the same job on several numbers of devices, and what more devices lose."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from escala.cli.options import Whole, calibration_option, examples, json_option, stacked, switch
from escala.cli.output import console, note, quiet, show, stdout_kept, working
from escala.cli.verb import Verb

if TYPE_CHECKING:
    from escala.training.launch import Place

EXAMPLES = (
    "escala scale plan.json --devices 1,2,4",
    "escala scale plan.json --devices 2,4,8 --weak --steps 100 -o weak",
)
INTERRUPTED = 130
study_options = stacked(
    click.option("--devices", required=True, metavar="LIST", help="Numbers of devices: 1,2,4."),
    switch("--weak/--no-weak", help="Keep the samples of a device, not the global batch."),
    click.option(
        "--steps", type=Whole(16, 100_000), default=30, show_default=True, help="Steps at each point."
    ),
    click.option("--module", metavar="WHAT", help="HF folder, config.json, or package.module:function."),
    click.option(
        "--data", default="synthetic", metavar="WHERE", show_default=True, help="Folder, stdlib or synthetic."
    ),
    click.option("--seed", type=Whole(0, 2**31), default=1, show_default=True, help="Of weights and order."),
    click.option("--device", metavar="NAME", help="cuda or cpu; cuda where there is one."),
    click.option(
        "-o", "--out", default="scale", metavar="DIR", show_default=True, help="Folder of the study."
    ),
)


@click.command("scale", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("plan", required=False)
@study_options
@calibration_option
@json_option
def command(plan: str | None, devices: str, as_json: bool, **given: Any) -> int:
    """Run PLAN on several numbers of devices of this machine, and say what more devices lose.

    PLAN is a plan.json, or the number of a plan of the last `escala plan`; without it, the recommended one.
    Its data-parallel degree follows the devices. Points that are done are not run again; Ctrl-C keeps them.
    """
    from escala.report.scale_text import print_scaled
    from escala.report.scale_view import prepare, result, run, save, study_of

    with working("predicting"):
        study = study_of(plan, devices, given)
    prepare(study)
    code = 0
    try:
        with stdout_kept():
            run(study, note)
    except KeyboardInterrupt:
        code = INTERRUPTED
    document = result(study)
    written = save(study, document)
    show(document, as_json, print_scaled)
    for each in written:
        note(f"wrote {each}")
    return code


def ranked(place: "Place", arguments: Sequence[str]) -> int:
    """The work of one rank of a point: the job by its file."""
    from contextlib import nullcontext

    from escala.report.train_text import live
    from escala.report.train_view import read_job, save_trained, trained

    job, plan = read_job(arguments[0])
    shown = live(console(sys.stderr), job.choices.steps) if place.rank == 0 else nullcontext(quiet)
    with shown as told:
        document = trained(job, plan, place, told, quiet)
    if document is not None:
        save_trained(document, job, plan)
        return INTERRUPTED if document.is_interrupted else 0
    return 0
