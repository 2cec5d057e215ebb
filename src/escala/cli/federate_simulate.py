"""`escala federate simulate`: the rounds of a population, without a network and without devices."""

from typing import Any

import click

from escala.cli.options import Whole, examples, json_option, stacked
from escala.cli.output import note, progressing, show, terminable
from escala.cli.verb import Verb

EXAMPLES = (
    "escala federate simulate hospitals",
    "escala federate simulate scenario.toml --rounds 500 --policy energy -o out",
    "escala federate simulate scenario.toml --compare uniform,energy",
    "escala federate simulate scenario.toml --engine learning --task digits",
)
INTERRUPTED = 130
simulate_options = stacked(
    click.option(
        "--rounds", type=Whole(1, 1_000_000), help="Rounds; the middle of the scenario's if not given."
    ),
    click.option("--seed", type=Whole(0, 2**31), help="Of devices, cohorts and losses.  [the scenario's]"),
    click.option(
        "--policy",
        metavar="NAME",
        help="uniform, poisson, utility, energy or low-carbon.  [the scenario's]",
    ),
    click.option("--compare", metavar="LIST", help="Several policies on the same fleet: uniform,energy."),
    click.option(
        "-o", "--out", metavar="DIR", default="simulation", show_default=True, help="Folder of the rounds."
    ),
)
learning_options = stacked(
    click.option(
        "--task", metavar="TASK", help="To learn: digits, package.module:function, a Parquet file, a folder."
    ),
    click.option("--net", type=click.Choice(["mlp", "cnn"]), help="Network, where the task is a file."),
    click.option(
        "--label",
        metavar="COLUMN",
        default="label",
        show_default=True,
        help="Of a table: what is learnt.",
    ),
    click.option("--user", metavar="COLUMN", help="Of a table: whose row it is, for skew by-user."),
    click.option(
        "--deal",
        type=click.Choice(["exact", "whole"]),
        default="exact",
        show_default=True,
        help="exact: as many samples as the scenario says; whole: all samples, each to one client.",
    ),
)


@click.command("federate simulate", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("scenario", metavar="SCENARIO")
@click.option(
    "--engine",
    type=click.Choice(["events", "learning"]),
    default="events",
    show_default=True,
    help="events: a virtual clock without training; learning: clients train on it.",
)
@learning_options
@simulate_options
@json_option
def command(scenario: str, as_json: bool, **given: Any) -> int:
    """Simulate the rounds of the population that SCENARIO describes: who returns, when, at what cost.

    SCENARIO is a file or the name of a shipped example.

    Writes each round to rounds.jsonl as it comes, and simulation.json and a page at the end. Ctrl-C ends
    early and keeps what is there; the same command gives the same rounds again, or goes on learning.
    """
    from escala.report.federated_text import print_simulation
    from escala.report.federated_view import simulated

    with terminable(), progressing() as progress:
        document, written = simulated(scenario, given, progress, note)
    show(document, as_json, print_simulation)
    for each in written:
        note(f"wrote {each}")
    return INTERRUPTED if document.is_interrupted else 0
