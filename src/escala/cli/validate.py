"""`escala validate`: how far the model is off on published measurements, and on your own."""

import click

from escala.cli.options import Whole, Word, examples, json_option
from escala.cli.output import console, note, working, write_json
from escala.cli.verb import Verb
from escala.errors import InvalidInput

EXAMPLES = (
    "escala validate --by regime --worst 5",
    "escala validate --html validate.html --svg validate.svg",
)


@click.command("validate", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("table", required=False, metavar="[CSV]")
@click.option(
    "--by",
    type=Word(),
    default="source",
    metavar="NAME",
    show_default=True,
    help="source, group, accelerator, framework, arch, regime or year.",
)
@click.option("--worst", type=Whole(0, 1000), default=20, show_default=True, help="Worst rows to show.")
@click.option("--html", metavar="FILE", help="Write a page with the plot and the tables.")
@click.option("--svg", metavar="FILE", help="Write the plot of predicted against published.")
@json_option
def command(table: str | None, by: str, worst: int, html: str | None, svg: str | None, as_json: bool) -> int:
    """Score every published measurement of a table against what the model predicts.

    Without CSV these are the rows that escala ships. Your own table has one run in each line, and as many of
    the same columns as you know.
    """
    from escala.report.validate_files import save
    from escala.report.validate_text import print_validated
    from escala.report.validate_view import dimension, validated

    by = dimension(by)
    _refuse_same(table, html, svg)
    with working("reading and predicting"):
        document = validated(table, worst)
    for path in save(document, html, svg):
        note(f"wrote {path}")
    if as_json:
        write_json(document)
    else:
        print_validated(console(), document, by)
    return 0 if document.read else 1


def _refuse_same(*names: str | None) -> None:
    """Refuse to write one file twice, or over the table."""
    from os.path import realpath

    given = [name for name in names if name]
    places = [realpath(name) for name in given]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise InvalidInput(
                f"{given[number]} is named twice on the command line; give each file its own name"
            )
