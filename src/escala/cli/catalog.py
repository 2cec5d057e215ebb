"""`escala catalog`: the sourced facts behind every prediction."""

import click

from escala.cli.options import examples, json_option
from escala.cli.output import show
from escala.cli.verb import Verb

EXAMPLES = (
    "escala catalog",
    "escala catalog accelerators",
    "escala catalog h100-sxm",
    "escala catalog links/nvlink4 --json",
)


@click.command("catalog", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("name", required=False, metavar="[KIND|NAME]")
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Look up what escala knows: value, unit, source, date, condition, and what other sources say.

    Without a name it lists the kinds. Where one name means several things, write KIND/NAME.
    """
    from escala.report.catalog_text import print_catalog
    from escala.report.catalog_view import catalog_view

    show(catalog_view(name), as_json, print_catalog)
