"""`escala data`: what is done with data before training."""

import click

from escala.cli.options import Number, examples, json_option
from escala.cli.output import note, progressing, show
from escala.cli.verb import Verb

EXAMPLES = (
    "escala data prepare books -o tokens",
    "escala data prepare texts.jsonl --field content -o texts --json",
    "escala data prepare texts.jsonl --tokenizer tokenizer.json -o tokenized",
)


@click.group("data", invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Prepare text for training."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command("data prepare", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("sources", nargs=-1, required=True)
@click.option("-o", "--out", metavar="DIR", required=True, help="Folder of the tokens.")
@click.option("--tokenizer", metavar="FILE", help="A tokenizer.json; the bytes of the text if not given.")
@click.option("--end", metavar="TOKEN", help="Token behind a document, where the tokenizer leaves it open.")
@click.option(
    "--field", default="text", show_default=True, metavar="NAME", help="Key or column that has the text."
)
@click.option(
    "--validation",
    type=Number(0.0, 0.5),
    default=0.01,
    show_default=True,
    metavar="SHARE",
    help="Share of the documents that is kept for validation, by their hash.",
)
@json_option
def prepare(
    sources: tuple[str, ...],
    out: str,
    tokenizer: str | None,
    end: str | None,
    field: str,
    validation: float,
    as_json: bool,
) -> None:
    """Turn text into tokens that training maps into memory.

    SOURCES are text files, JSON lines, Parquet, data sets that `datasets` saved, or folders of files. Ctrl-C
    stops; the same command goes on behind the last shard.
    """
    from escala.report.tokens_text import prepared, print_tokens

    with progressing() as progress:
        try:
            document = prepared(sources, out, tokenizer, end, field, validation, progress)
        except KeyboardInterrupt:
            note(f"stopped; the same command goes on in {out}")
            raise
    show(document, as_json, print_tokens)


command.add_command(prepare, "prepare")
