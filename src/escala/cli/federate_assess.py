"""`escala federate assess`: federate, centralise, or each alone, with numbers."""

import click

from escala.cli.options import examples, json_option
from escala.cli.output import note, show
from escala.cli.verb import Verb
from escala.errors import InvalidInput

EXAMPLES = (
    "escala federate assess hospitals",
    "escala federate assess --example hospitals",
    "escala federate assess scenario.toml --html assessment.html",
)


@click.command("federate assess", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("scenario", required=False)
@click.option("--example", metavar="NAME", help="Print a scenario that comes with escala, to start from.")
@click.option("--html", metavar="FILE", help="Write a page too.")
@json_option
def command(scenario: str | None, example: str | None, html: str | None, as_json: bool) -> None:
    """Decide with numbers whether to federate, to centralise, or to learn at each place alone.

    SCENARIO is a file (TOML; YAML and JSON hold the same keys) or the name of a shipped example; without it
    the examples are listed. Nothing is run: bytes, time, energy, carbon and money are low, middle and high,
    and every input has the value at which the verdict would be another.
    """
    from escala.federated.reading import example_names, example_text, find_scenario
    from escala.report.assess_text import print_assessment
    from escala.report.assess_view import assessed

    if example is not None:
        click.echo(example_text(example), nl=False)
        return
    if scenario is None:
        if as_json:
            raise InvalidInput(
                "no scenario is named, so there is no document; give a file, or one of the examples"
                f" {', '.join(example_names())}"
            )
        for name in example_names():
            click.echo(f"{name:<22}{find_scenario(name).name}")
        return
    document, written = assessed(find_scenario(scenario), html)
    show(document, as_json, print_assessment)
    for each in written:
        note(f"wrote {each}")
