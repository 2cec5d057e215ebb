"""`escala federate run`: a scenario on Flower, here or on several machines."""

from typing import Any

import click

from escala.cli.options import Whole, examples, json_option, stacked, switch
from escala.cli.output import note, progressing, show, terminable
from escala.cli.verb import Verb

EXAMPLES = (
    "escala federate run scenario.toml --nodes 4 -o run",
    "escala federate run scenario.toml --task own:build -o run --resume",
    "escala federate run scenario.toml --app own:app --first own:weights",
    "escala federate run scenario.toml --hosts server,site-a,site-b",
)
INTERRUPTED = 130
what_options = stacked(
    click.option("--task", metavar="WHAT", help="digits, a file, or package.module:function.  [digits]"),
    click.option("--app", metavar="WHAT", help="Your own ClientApp, package.module:app, instead of a task."),
    click.option("--first", metavar="WHAT", help="With --app: a function that gives its first weights."),
    click.option("--rounds", type=Whole(1, 10**6), help="Rounds in all; else those of the scenario."),
    click.option("--nodes", type=Whole(1, 10_000), help="Nodes to start; else one for every client."),
)
where_options = stacked(
    click.option("-o", "--out", default="federated", metavar="DIR", show_default=True, help="Folder."),
    switch("--resume/--no-resume", help="Go on behind the last whole round of the folder."),
    click.option("--hosts", metavar="LIST", help="Only say what to start where: server,site-a,..."),
)


@click.command("federate run", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("scenario")
@what_options
@where_options
@json_option
def command(scenario: str, out: str, hosts: str | None, as_json: bool, **given: Any) -> int:
    """Run SCENARIO on Flower: a SuperLink and nodes with TLS and node authentication.

    Started here, over loopback, they are watched, started again when they die, and all end with this command.
    Ctrl-C stops; --resume goes on. With --hosts, the folder is made and the commands are printed.
    """
    from escala.report.federated_run_text import print_run, print_start
    from escala.report.federated_run_view import run_document, start_document

    if hosts is not None:
        show(start_document(scenario, out, given, hosts.split(","), note), as_json, print_start)
        return 0
    with terminable(), progressing() as progress:
        try:
            document = run_document(scenario, out, given, progress, note)
        except KeyboardInterrupt:
            return INTERRUPTED
    show(document, as_json, print_run)
    return 0
