"""`escala export`: what a run has learned, as files that others load."""

import click

from escala.cli.options import examples, json_option, switch
from escala.cli.output import show, stdout_kept, working
from escala.cli.verb import Verb

EXAMPLES = (
    "escala export run -o model",
    "escala export run/checkpoints/step-00000100 -o model",
    "escala export run -o adapter --adapter",
    "escala export run -o model --merged --json",
)


@click.command("export", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("run")
@click.option("-o", "--out", required=True, metavar="DIR", help="New folder for the files.")
@switch("--adapter/--no-adapter", help="Adapters alone, as peft loads them.")
@switch("--merged/--no-merged", help="Adapters added to their weights, as one model.")
@json_option
def command(run: str, out: str, adapter: bool, merged: bool, as_json: bool) -> None:
    """Write the model of RUN's newest checkpoint as safetensors, which transformers or peft load.

    RUN is the folder of a run of `escala train`, or one checkpoint in it. A run that trained adapters needs
    --adapter or --merged.
    """
    from escala.report.export_text import print_exported
    from escala.report.export_view import exported

    with stdout_kept(), working("reading the checkpoint"):
        document = exported(run, out, is_adapter=adapter, is_merged=merged)
    show(document, as_json, print_exported)
