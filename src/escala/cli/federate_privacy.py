"""`escala federate privacy`: what noise costs in privacy, by the sampler that is used."""

from typing import Any

import click

from escala.cli.options import Number, Whole, examples, json_option
from escala.cli.output import show, working
from escala.cli.verb import Verb
from escala.errors import InvalidInput

EXAMPLES = (
    "escala federate privacy --noise 1 --clients 900 --per-round 90 --rounds 100",
    "escala federate privacy --epsilon 8 --clients 900 --per-round 9 --rounds 900",
    "escala federate privacy --noise 4 --clients 20 --rounds 50 --place local",
    "escala federate privacy scenario.toml --json",
)
MOST = 100_000_000


@click.command("federate privacy", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("scenario", required=False, metavar="[SCENARIO]")
@click.option("--noise", type=Number(1e-3, 1e6), help="Deviation of the noise over the clip of an update.")
@click.option("--epsilon", type=Number(1e-3, 1e6), help="Find the least noise for this epsilon instead.")
@click.option("--clients", type=Whole(1, MOST), help="Clients in all.")
@click.option("--per-round", "cohort", type=Whole(1, MOST), help="Clients a round, on average.  [all]")
@click.option("--rounds", type=Whole(1, 10_000_000), help="Rounds.")
@click.option("--delta", type=Number(1e-30, 0.5), default=1e-5, show_default=True, help="Chance of failure.")
@click.option(
    "--sampler",
    type=click.Choice(("poisson", "uniform")),
    default="poisson",
    show_default=True,
    help="Each client by chance, or a fixed number.",
)
@click.option(
    "--place",
    type=click.Choice(("central", "local")),
    default="central",
    show_default=True,
    help="Who adds the noise: a server that is trusted, or every client.",
)
@json_option
def command(scenario: str | None, as_json: bool, **given: Any) -> int:
    """Say which epsilon a noise gives, or which noise an epsilon needs.

    With SCENARIO: for its training, or why that has no epsilon. Ends with 1 if there is none.
    """
    from escala.report.privacy_text import print_privacy
    from escala.report.privacy_view import from_numbers, from_scenario

    if scenario is None and (given["clients"] is None or given["rounds"] is None):
        raise InvalidInput("give a scenario, or --clients and --rounds with --noise or --epsilon")
    if scenario is not None and any(
        given[name] is not None for name in ("noise", "epsilon", "clients", "cohort")
    ):
        raise InvalidInput("a scenario says noise and clients itself; only --rounds goes with it")
    with working("accounting"):
        document = from_numbers(**given) if scenario is None else from_scenario(scenario, given["rounds"])
    show(document, as_json, print_privacy)
    return 0 if document.why_none is None else 1
