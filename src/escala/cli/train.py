"""`escala train`: the plan that was chosen, run on a real model and set beside its prediction."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from escala.cli.options import Number, Whole, Word, calibration_option, examples, json_option, stacked, switch
from escala.cli.output import console, note, quiet, stdout_kept, working, write_json
from escala.cli.verb import Verb
from escala.errors import InvalidInput

if TYPE_CHECKING:
    from escala.training.launch import Place

EXAMPLES = (
    "escala train plan.json --steps 500",
    "escala train plan.json --module ./llama --data tokens --steps 2000",
    "torchrun --nproc-per-node 8 -m escala train plan.json --steps 500",
    "escala train plan.json --steps 5000 --nodes 4",
)
INTERRUPTED = 130
MOST_STEPS = 1_000_000_000
what_options = stacked(
    click.option("--module", metavar="WHAT", help="HF folder, config.json, or package.module:function."),
    click.option(
        "--data", default="stdlib", metavar="WHERE", show_default=True, help="Folder, stdlib or synthetic."
    ),
    click.option("--steps", type=Whole(1, MOST_STEPS), help="Steps; else those of the plan's tokens."),
    click.option("--minutes", type=Number(0.01, 1e6), help="As many steps as are predicted to fill them."),
    click.option("--seed", type=Whole(0, 2**31), default=1, show_default=True, help="Of weights and order."),
    click.option("--lr", type=Number(1e-12, 1e3), default=1e-3, show_default=True, help="Highest rate."),
    click.option("--warmup", type=Whole(0, MOST_STEPS), default=0, help="Steps of rising rate.  [0]"),
    click.option(
        "--decay", type=Word(), default="cosine", show_default=True, help="cosine, linear or constant."
    ),
    click.option(
        "--weight-decay", type=Number(0.0, 10.0), default=0.1, show_default=True, help="Of all weights."
    ),
    click.option(
        "--clip", type=Number(0.0, 1e6), default=1.0, show_default=True, help="Largest gradient; 0: any."
    ),
    click.option("--compress", type=Word(), help="Gradients of DDP: bf16, fp16, powersgd.  [none]"),
    switch("--noise/--no-noise", help="Estimate the batch beyond which more samples a step buy little."),
    click.option("--outer-lr", type=Number(0.0, 10.0), default=1.0, help="Of local steps.  [1]"),
    click.option("--outer-momentum", type=Number(0.0, 1.0), default=0.0, help="Of local steps.  [0]"),
    click.option("--fragments", type=Whole(1, 1000), default=1, help="Parts that agree in turn.  [1]"),
)
how_options = stacked(
    click.option("-o", "--out", default="run", metavar="DIR", show_default=True, help="Folder of the run."),
    switch("--resume/--no-resume", help="Go on from the newest checkpoint of the folder."),
    click.option("--save-every", type=Whole(0, MOST_STEPS), default=0, help="Steps between checkpoints."),
    click.option("--keep", type=Whole(1, 10_000), default=2, show_default=True, help="Checkpoints to keep."),
    switch("--async-save/--no-async-save", help="Write checkpoints beside the steps."),
    click.option("--eval-every", type=Whole(0, MOST_STEPS), default=0, help="Steps between evaluations."),
    click.option("--sink", metavar="LIST", help="Trackers: tensorboard, mlflow, wandb, trackio."),
    click.option("--device", metavar="NAME", help="cuda or cpu; cuda where there is one."),
    click.option("--restarts", type=Whole(0, 1000), default=3, show_default=True, help="After a lost rank."),
    click.option("--nodes", type=Whole(1, 100_000), help="Only print what to run on so many nodes."),
    switch("--submit/--no-submit", help="With --nodes: hand it to Slurm."),
    click.option(
        "--observe/--no-observe", default=True, help="Profile four steps, to compare term by term.  [on]"
    ),
)


@click.command("train", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("plan", required=False)
@click.option("--job", metavar="FILE", help="A job.json of an earlier call, instead of all other options.")
@what_options
@how_options
@calibration_option
@json_option
def command(plan: str | None, job: str | None, as_json: bool, **given: Any) -> int:
    """Train what PLAN plans, and set predicted beside measured.

    PLAN is a plan.json, or the number of a plan of the last `escala plan`; without it, the recommended one.
    Under torchrun, Slurm or Kubernetes this process is one of the ranks; else the ranks are started here.
    Ctrl-C saves a checkpoint and ends; --resume goes on.
    """
    from escala.report.train_view import asked_of, begun, here, is_rank, tell_resumed

    place = here()
    if job is not None:
        if plan is not None:
            raise InvalidInput("a plan and --job were given; --job has its own plan, so leave the plan out")
        return _by_file(job, place, given["restarts"], as_json)
    with working("predicting"):
        asked = asked_of(plan, given)
    if is_rank(place) and place.rank:
        return _ranked(place, (asked.job, asked.plan_document), as_json)
    with begun(asked, note) as path:
        if not is_rank(place):
            return _started(asked, path, given, as_json)
        tell_resumed(asked.job, note, is_asked=asked.resumes)
        return _ranked(place, (asked.job, asked.plan_document), as_json)


def _by_file(path: str, place: "Place", restarts: int, as_json: bool) -> int:
    """Run the job of a file: as one of the ranks, or by starting them here."""
    from escala.report.train_view import is_rank, read_job, start_job, tell_resumed
    from escala.training.launch.lock import only_run

    asked = read_job(path)
    if is_rank(place) and place.rank:
        return _ranked(place, asked, as_json)
    with only_run(asked[0].folder, note):
        tell_resumed(asked[0], note, is_asked=False)
        if is_rank(place):
            return _ranked(place, asked, as_json)
        try:
            start_job(asked[0], Path(path), restarts, as_json, note)
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


def _started(asked: Any, path: Path, given: Mapping[str, Any], as_json: bool) -> int:
    """Start the ranks here, or say how to on several nodes."""
    from escala.report.train_view import nodes_text, start_here

    if given["submit"] and given["nodes"] is None:
        raise InvalidInput("--submit goes with --nodes; say how many nodes")
    if given["nodes"] is not None:
        click.echo(nodes_text(asked, path, given["nodes"], submits=given["submit"]))
        return 0
    try:
        start_here(asked, path, as_json, note)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def ranked(place: "Place", arguments: Sequence[str]) -> int:
    """The work of one rank that was started here: a job by its file, and whether JSON is wanted."""
    from escala.report.train_view import read_job
    from escala.training.launch.lock import RANK, only_run

    path, how = arguments
    asked = read_job(path)
    with only_run(asked[0].folder, quiet, RANK) if place.rank == 0 else nullcontext():
        return _ranked(place, asked, how == "json")


def _ranked(place: "Place", asked: tuple[Any, Mapping[str, Any]], as_json: bool) -> int:
    """Train as one rank; the first one tells."""
    from escala.report.train_text import live, print_trained
    from escala.report.train_view import save_trained, trained

    job, plan = asked
    shown = live(console(sys.stderr), job.choices.steps) if place.rank == 0 else nullcontext(quiet)
    with stdout_kept(), shown as told:
        document = trained(job, plan, place, told, quiet)
    if document is None:
        return 0
    written = save_trained(document, job, plan)
    if as_json:
        write_json(document)
    else:
        print_trained(console(), document)
    for each in written:
        note(f"wrote {each}")
    return INTERRUPTED if document.is_interrupted else 0
