"""`escala verify`: a run beside the plan that it followed, or plans beside one process."""

from typing import Any

import click

from escala.cli.options import Whole, calibration_option, examples, json_option, stacked, switch
from escala.cli.output import note, show, stdout_kept, working
from escala.cli.verb import Verb
from escala.errors import InvalidInput

EXAMPLES = (
    "escala verify run.json plan.json",
    "escala verify run.json 2 --json",
    "escala verify run.json plan.json -o pair.json",
    "escala verify --layouts plan.json --module own:build",
)
layout_options = stacked(
    switch("--layouts/--no-layouts", help="Train plans a few steps; all must give the same."),
    click.option("--module", metavar="WHAT", help="With --layouts: as in escala train."),
    click.option("--devices", type=Whole(1, 1024), help="With --layouts: ranks at most.  [2]"),
    click.option("--seed", type=Whole(0, 2**31), default=1, show_default=True, help="Of the weights."),
    click.option("--device", metavar="NAME", help="With --layouts: cuda or cpu."),
)


@click.command("verify", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("files", nargs=-1, metavar="RUN [PLAN] | --layouts [PLAN...]")
@calibration_option
@click.option("-o", "--output", metavar="FILE", help="Write run and plan as one file, for escala calibrate.")
@layout_options
@json_option
def command(
    files: tuple[str, ...],
    calibration: str | None,
    output: str | None,
    layouts: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Compare what RUN recorded with what was predicted for PLAN: step time, rate, memory, energy.

    RUN is what `escala record --out` wrote. PLAN is a plan.json, or the number of a plan of the last `escala
    plan`; without it, the recommended one.

    With --layouts: train a module a few steps under each PLAN, compare losses and weights with one process,
    and name the first pass that breaks them. Without a plan: DDP, FSDP, TP + SP, PP and CP over the ranks.
    """
    if layouts:
        return _layouts(files, given, as_json)
    if given["module"] is not None or given["devices"] is not None:
        raise InvalidInput("--module and --devices go with --layouts; add it, or leave them out")
    if not 1 <= len(files) <= 2:
        raise InvalidInput(f"{len(files)} files were given; give a run, or a run and its plan")
    return _run(files[0], files[1] if len(files) == 2 else None, calibration, output, as_json)


def _layouts(plans: tuple[str, ...], given: dict[str, Any], as_json: bool) -> int:
    from escala.report.layouts_text import print_compared
    from escala.report.layouts_view import compared, is_wrong

    with stdout_kept():
        document = compared(plans, given, note)
    show(document, as_json, print_compared)
    return 1 if is_wrong(document) else 0


def _run(run: str, plan: str | None, calibration: str | None, output: str | None, as_json: bool) -> int:
    from escala.report.verify_text import print_verified
    from escala.report.verify_view import save_pair, verified

    with working("predicting"):
        document = verified(run, plan, calibration)
    if output is not None:
        save_pair(run, plan, output)
        note(f"wrote {output}")
    show(document, as_json, print_verified)
    return 0 if document.compared else 1
