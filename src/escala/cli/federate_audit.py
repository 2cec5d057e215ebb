"""`escala federate audit`: whether the records of a federated run are whole, and what it was."""

import click

from escala.cli.options import examples, json_option
from escala.cli.output import note, show
from escala.cli.verb import Verb

EXAMPLES = (
    "escala federate audit runs/digits",
    "escala federate audit runs/digits --head 5f1c… --json",
    "escala federate audit runs/digits -o audit.html",
)


@click.command("federate audit", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("folder", metavar="DIR")
@click.option("--head", metavar="DIGEST", help="The end of the chain, as it was kept elsewhere.")
@click.option("-o", "--output", metavar="FILE", help="Write a page.")
@json_option
def command(folder: str, head: str | None, output: str | None, as_json: bool) -> int:
    """Check the records of a federated run: every round once, none changed since it was written.

    DIR holds manifest.json and rounds.jsonl. Ends with 1 if the records are not whole.
    """
    from escala.report.audit_text import print_audited
    from escala.report.audit_view import audited

    document, found = audited(folder, head)
    if output is not None:
        from escala.report.audit_page import save_page

        save_page(document, found.rounds, output)
        note(f"wrote {output}")
    show(document, as_json, print_audited)
    return 0 if document.is_sound else 1
