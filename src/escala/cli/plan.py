"""`escala plan`: which parallelization to use, and why."""

from typing import TYPE_CHECKING, Any

import click

from escala.cli.options import Number, Whole, devices, examples, json_option, what_options, where_options
from escala.cli.output import show, working

if TYPE_CHECKING:
    from escala.report.view import Asked

EXAMPLES = (
    "escala plan llama-3.1-8b --gpus 8 --gpu h100-sxm --tokens 15B",
    "escala plan gpt3-175b --gpus 1024 --gpu a100-sxm-80gb --fix tp=8,pp=8,16",
    "escala plan mixtral-8x7b --gpus 64 --gpu h100-sxm --seq 4096 --json",
    "escala plan ./config.json --gpus 4 --gpu rtx-4090 --method lora -o plan.json",
)


@click.command(
    "plan", epilog=examples(*EXAMPLES), short_help="Rank the ways to train a network on a cluster."
)
@click.argument("model")
@where_options
@what_options
@click.option("--objective", default="time", metavar="NAME", show_default=True, help="time, cost or energy.")
@click.option("--top", type=Whole(1, 1000), default=10, show_default=True, help="Plans to show.")
@click.option("--pareto", is_flag=True, help="Only plans that no other beats in time, memory and simplicity.")
@click.option(
    "--tolerance", type=Number(0.0, 1.0), default=0.05, show_default=True, help="How near the best is near."
)
@click.option(
    "--fix", multiple=True, metavar="KEY=V,..", help="Values that fields of a plan may take: tp=4,8,pp=2."
)
@click.option("--all-placements", is_flag=True, help="Also try mesh orders without TP innermost.")
@click.option("--min-gpus", type=devices, help="Fewest devices to try, without --gpus.")
@click.option("--max-gpus", type=devices, help="Most devices to try, without --gpus.")
@click.option("-o", "--output", metavar="FILE", help="Write the recommended plan to a file.")
@json_option
def command(model: str, as_json: bool, **given: Any) -> int:
    """Rank the ways to train MODEL on a cluster, and recommend the simplest one near the best.

    MODEL is a name of the catalog, a config.json or its folder, a TOML description, or hf:owner/name.
    """
    asked = ask(model, given)
    from escala.report.plan_text import print_answer
    from escala.report.view import answer

    document = answer(asked)
    show(document, as_json, print_answer)
    return 0 if document.recommended is not None else 1


def ask(model: str, given: dict[str, Any]) -> "Asked":
    """Search the plans that the options allow."""
    from escala.cli.question import cluster_of, question_of
    from escala.planning.defaults import answerable, precision_code
    from escala.planning.search import search
    from escala.planning.space import SpaceLimits
    from escala.report.planwords import narrowed, objective_of
    from escala.report.view import Asked

    cluster = cluster_of(given, given["gpus"])
    problem, assumed = answerable(question_of(model, given, cluster))
    limits = SpaceLimits(
        fixed=narrowed(given["fix"]),
        precision=precision_code(given["precision"]),
        all_placements=given["all_placements"],
    )
    objective = objective_of(given["objective"])
    with working("searching"):
        found = search(problem, limits, objective=objective, top=given["top"], tolerance=given["tolerance"])
    return Asked(problem=problem, limits=limits, found=found, assumed=assumed)
