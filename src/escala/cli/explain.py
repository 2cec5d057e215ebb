"""`escala explain`: where one plan's time and memory go, and why it was chosen."""

from typing import TYPE_CHECKING

import click

from escala.cli.options import calibration_option, examples, json_option, switch
from escala.cli.output import note, progressing, show, working
from escala.cli.verb import Verb

if TYPE_CHECKING:
    from escala.report.explain_view import Explained
    from escala.report.planfile import PlanFile

EXAMPLES = (
    "escala explain",
    "escala explain 2 --trace",
    "escala explain plan.json --timeline timeline.json",
    "escala explain 1 --json",
)


@click.command("explain", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("plan", required=False)
@click.option("--timeline", metavar="FILE", help="Write one step as a Chrome trace, for ui.perfetto.dev.")
@switch("--trace/--no-trace", help="Run the real module without hardware, and set its memory beside.")
@calibration_option
@json_option
def command(
    plan: str | None, timeline: str | None, trace: bool, calibration: str | None, as_json: bool
) -> int:
    """Explain PLAN term by term: seconds, formulas, memory, why not the others, what would change it.

    PLAN is a plan.json, or the number of a plan of the last `escala plan`; without it, the recommended one.
    """
    from escala.report.explain_text import print_explained
    from escala.report.explain_view import explained
    from escala.report.saved import chosen_plan, save_timeline
    from escala.report.under import file_under

    file, row = chosen_plan(plan)
    file = file_under(file, calibration)
    with working("explaining"):
        document = explained(file, row)
    if trace and not document.broken_rules:
        document = with_trace(document, file, row)
    if timeline is not None and document.broken_rules:
        note(f"wrote nothing: the plan cannot be run, {timeline} is untouched")
    elif timeline is not None:
        save_timeline(file, row, timeline)
        note(f"wrote {timeline}")
    show(document, as_json, print_explained)
    return 1 if document.broken_rules else 0


def with_trace(document: "Explained", file: "PlanFile", row: int) -> "Explained":
    """The explanation with a trace of its plan; progress is told while it runs."""
    from dataclasses import replace

    from escala.report.trace_view import trace_view

    with progressing() as progress:
        return replace(document, trace=trace_view(file, row, progress))
