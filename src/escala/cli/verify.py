"""`escala verify`: a run beside the plan that it followed."""

import click

from escala.cli.options import calibration_option, examples, json_option
from escala.cli.output import note, show, working
from escala.cli.verb import Verb

EXAMPLES = (
    "escala verify run.json plan.json",
    "escala verify run.json 2 --json",
    "escala verify run.json plan.json -o pair.json",
)


@click.command("verify", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("run")
@click.argument("plan", required=False)
@calibration_option
@click.option("-o", "--output", metavar="FILE", help="Write run and plan as one file, for escala calibrate.")
@json_option
def command(run: str, plan: str | None, calibration: str | None, output: str | None, as_json: bool) -> int:
    """Compare what RUN recorded with what was predicted for PLAN: step time, rate, memory, energy.

    RUN is what `escala record --out` wrote. PLAN is a plan.json, or the number of a plan of the last `escala
    plan`; without it, the recommended one.
    """
    from escala.report.verify_text import print_verified
    from escala.report.verify_view import save_pair, verified

    with working("predicting"):
        document = verified(run, plan, calibration)
    if output is not None:
        save_pair(run, plan, output)
        note(f"wrote {output}")
    show(document, as_json, print_verified)
    return 0 if document.compared else 1
