"""`escala explain`: where one plan's time and memory go, and why it was chosen."""

import click

from escala.cli.options import calibration_option, examples, json_option
from escala.cli.output import note, show, working
from escala.cli.verb import Verb

EXAMPLES = (
    "escala explain",
    "escala explain 2",
    "escala explain plan.json --trace trace.json",
    "escala explain 1 --json",
)


@click.command("explain", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("plan", required=False)
@click.option("--trace", metavar="FILE", help="Write one step as a Chrome trace, for ui.perfetto.dev.")
@calibration_option
@json_option
def command(plan: str | None, trace: str | None, calibration: str | None, as_json: bool) -> int:
    """Explain PLAN term by term: seconds, formulas, memory, why not the others, what would change it.

    PLAN is a plan.json, or the number of a plan of the last `escala plan`; without it, the recommended one.
    """
    from escala.report.calibrate_view import file_under
    from escala.report.explain_text import print_explained
    from escala.report.explain_view import explained
    from escala.report.saved import chosen_plan, save_trace

    file, row = chosen_plan(plan)
    file = file_under(file, calibration)
    with working("explaining"):
        document = explained(file, row)
    if trace is not None and document.broken_rules:
        note(f"wrote nothing: the plan cannot be run, {trace} is untouched")
    elif trace is not None:
        save_trace(file, row, trace)
        note(f"wrote {trace}")
    show(document, as_json, print_explained)
    return 1 if document.broken_rules else 0
