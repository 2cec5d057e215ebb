"""`escala train`: the plan that was chosen, run on a real model and set beside its prediction."""

from typing import TYPE_CHECKING, Any

import click

from escala.cli.options import Number, Whole, Word, examples, json_option, stacked, switch
from escala.cli.output import console, note, progressing, stdout_kept, write_json
from escala.cli.verb import Verb

if TYPE_CHECKING:
    from escala.report.train_view import Request

EXAMPLES = (
    "escala train plan.json --steps 500",
    "escala train plan.json --data corpus/ --module ./llama-3.2-1b --steps 2000 --save-every 200",
    "torchrun --nproc-per-node 8 -m escala train plan.json --steps 500",
    "escala train plan.json --nodes 4 --endpoint node0:29500",
)
INTERRUPTED = 130
what_options = stacked(
    click.option("--module", metavar="WHAT", help="HF folder or config.json, or package.module:function."),
    click.option(
        "--data", default="stdlib", metavar="WHERE", show_default=True, help="Folder, stdlib or synthetic."
    ),
    click.option(
        "--steps", type=Whole(1, 1_000_000_000), help="Steps; else those of the plan's tokens."
    ),
    click.option("--minutes", type=Number(0.05, 1e6), help="As many steps as are predicted to take so long."),
    click.option("--seed", type=Whole(0, 2**31), default=1, show_default=True, help="Of weights and order."),
    click.option(
        "--lr", type=Number(0.0, 1e3), default=1e-3, show_default=True, help="Highest learning rate."
    ),
    click.option(
        "--warmup", type=Whole(0, 1_000_000_000), default=0, help="Steps of rising learning rate.  [0]"
    ),
    click.option(
        "--decay", type=Word(), default="cosine", show_default=True, help="cosine, linear or constant."
    ),
    click.option(
        "--weight-decay", type=Number(0.0, 10.0), default=0.1, show_default=True, help="Of AdamW and SGD."
    ),
    click.option(
        "--clip",
        type=Number(0.0, 1e6),
        default=1.0,
        show_default=True,
        help="Largest norm of gradients; 0: any.",
    ),
    click.option(
        "--compress", type=Word(), help="Gradients of DDP: bf16, fp16, powersgd.  [none]"
    ),
)
how_options = stacked(
    click.option("-o", "--out", default="run", metavar="DIR", show_default=True, help="Folder of the run."),
    switch("--resume/--no-resume", help="Go on from the newest checkpoint of the folder."),
    click.option("--save-every", type=Whole(0, 1_000_000_000), default=0, help="Steps between checkpoints; the "
                 "last step is always saved.  [0: none between]"),
    click.option("--keep", type=Whole(1, 10_000), default=2, show_default=True, help="Checkpoints to keep."),
    switch("--async-save/--no-async-save", help="Write checkpoints beside the steps."),
    click.option("--eval-every", type=Whole(0, 1_000_000_000), default=0, help="Steps between evaluations.  [0]"),
    click.option("--sink", metavar="LIST", help="Trackers: tensorboard, mlflow, wandb, trackio."),
    click.option("--device", metavar="NAME", help="cuda or cpu; cuda where there is one."),
    click.option("--restarts", type=Whole(0, 1000), default=3, show_default=True, help="After a lost rank."),
    click.option("--nodes", type=Whole(1, 100_000), help="Print what to run on each of so many nodes."),
    click.option("--endpoint", metavar="HOST:PORT", help="Where the nodes meet; with --nodes."),
    switch("--submit/--no-submit", help="Hand it to Slurm; with --nodes."),
    switch("--observe/--no-observe", help="Profile four steps, to compare term by term."),
)  # fmt: skip


@click.command("train", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("plan", required=False)
@what_options
@how_options
@json_option
def command(plan: str | None, as_json: bool, **given: Any) -> int:
    """Train what PLAN plans, and set predicted beside measured.

    PLAN is a plan.json, or the number of a plan of the last `escala plan`; without it, the recommended one.
    Under torchrun, Slurm or Kubernetes this process is one of the ranks; else the ranks are started here.
    Ctrl-C saves a checkpoint and ends.
    """
    from escala.report.train_view import request_of

    request = request_of(plan, given)
    if request.nodes is not None:
        return _nodes(request)
    return _train(request, as_json) if request.place.is_launched else _start(request)


def _nodes(request: "Request") -> int:
    from escala.report.train_view import nodes_text

    click.echo(nodes_text(request))
    return 0


def _start(request: "Request") -> int:
    """Start the ranks here; each runs this command again."""
    from escala.report.train_view import started

    return started(request)


def _train(request: "Request", as_json: bool) -> int:
    """Train as one rank; the first one tells."""
    from escala.report.train_text import live, print_trained
    from escala.report.train_view import save_trained, trained

    with stdout_kept(), progressing() as progress, live(console(), request.job.steps) as told:
        document = trained(request, told, progress)
    if document is None:
        return 0
    written = save_trained(document, request)
    if as_json:
        write_json(document)
    else:
        print_trained(console(), document)
    for each in written:
        note(f"wrote {each}")
    return INTERRUPTED if document.is_interrupted else 0
