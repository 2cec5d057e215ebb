"""`escala verify`: a run beside the plan that it followed."""

import click

from escala.cli.options import examples, json_option
from escala.cli.output import show, working
from escala.cli.verb import Verb

EXAMPLES = ("escala verify run.json plan.json", "escala verify run.json 2 --json")


@click.command("verify", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("run")
@click.argument("plan", required=False)
@json_option
def command(run: str, plan: str | None, as_json: bool) -> int:
    """Compare what RUN recorded with what was predicted for PLAN: step time, rate, memory, energy.

    RUN is what `escala record --out` wrote. PLAN is a plan.json, or the number of a plan of the last `escala
    plan`; without it, the recommended one.
    """
    from escala.report.verify_text import print_verified
    from escala.report.verify_view import verified

    with working("predicting"):
        document = verified(run, plan)
    show(document, as_json, print_verified)
    return 0 if document.compared else 1
