"""`escala federate forecast`: how many more rounds a target takes, from a pilot."""

import click

from escala.cli.options import Number, examples, json_option
from escala.cli.output import show, working
from escala.cli.verb import Verb

EXAMPLES = (
    "escala federate forecast pilot/rounds.jsonl --target 0.9",
    "escala federate forecast pilot --target 0.3 --metric loss --json",
)


@click.command("federate forecast", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("rounds", metavar="ROUNDS")
@click.option("--target", type=Number(-1e12, 1e12), required=True, help="Value of the metric to reach.")
@click.option("--metric", default="accuracy", metavar="NAME", show_default=True, help="Which of the metrics.")
@json_option
def command(rounds: str, target: float, metric: str, as_json: bool) -> int:
    """Say from the rounds of a pilot how many more rounds a target takes, with an interval.

    ROUNDS is a rounds.jsonl, or the folder that has it: of a simulation with training, or of a run.

    Exit code 1: the target is more likely than not out of reach.
    """
    from escala.federated.forecast import forecast, pilot_of
    from escala.federated.roundfile import read_rounds
    from escala.report.forecast_text import print_forecast

    with working("fitting curves"):
        document = forecast(pilot_of(read_rounds(rounds), metric), target)
    show(document, as_json, print_forecast)
    return 0 if document.reached_round is not None or document.more_mid_rounds is not None else 1
