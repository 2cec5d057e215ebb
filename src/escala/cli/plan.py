"""`escala plan`: which parallelization to use, and why."""

from typing import TYPE_CHECKING, Any

import click

from escala.cli.options import (
    Number,
    Whole,
    Word,
    calibration_option,
    devices,
    examples,
    json_option,
    reason_options,
    switch,
    what_options,
    where_options,
)
from escala.cli.output import note, show, working
from escala.cli.verb import Verb
from escala.errors import InvalidInput

if TYPE_CHECKING:
    from escala.model.cluster import Cluster
    from escala.model.network import Network
    from escala.model.problem import Problem
    from escala.planning.defaults import Assumed
    from escala.planning.space import SpaceLimits
    from escala.report.view import Asked

EXAMPLES = (
    "escala plan llama-3.1-8b --gpus 8 --gpu h100-sxm --tokens 15B",
    "escala plan gpt3-175b --gpus 1024 --gpu a100-sxm-80gb --fix tp=8,pp=8,16",
    "escala plan qwen3-8b --gpus 4 --gpu a100-sxm-80gb --method lora -o plan.json",
    "escala plan resnet-50 --gpus 1024 --gpu a100-sxm-40gb --keep 0.85",
)


@click.command("plan", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("model")
@where_options
@what_options
@click.option(
    "--objective",
    type=Word(),
    default="time",
    metavar="NAME",
    show_default=True,
    help="time, cost or energy.",
)
@click.option("--top", type=Whole(1, 1000), default=6, show_default=True, help="Plans to show.")
@switch("--pareto/--no-pareto", help="Only plans that no other beats in time, memory and simplicity.")
@click.option(
    "--tolerance", type=Number(0.0, 1.0), default=0.05, show_default=True, help="How near the best is near."
)
@click.option("--fix", multiple=True, metavar="KEY=V,..", help="Values that fields may take: tp=4,8,pp=2.")
@switch("--all-placements/--no-all-placements", help="Also try mesh orders without TP innermost.")
@click.option("--min-gpus", type=devices, help="Fewest devices to try, instead of --gpus.")
@click.option("--max-gpus", type=devices, help="Most devices to try, instead of --gpus.")
@reason_options
@calibration_option
@click.option("-o", "--output", metavar="FILE", help="Write the recommended plan to a file.")
@json_option
def command(model: str, as_json: bool, output: str | None, **given: Any) -> int:
    """Rank the ways to train MODEL on a cluster, and recommend the simplest one near the best.

    MODEL is a name of the catalog, a config.json or its folder, a TOML description, hf:owner/name, or
    package.module:function that makes a module of your own: your code is then run, on tensors without data,
    as by escala trace. Without a number of devices, the answer says how few fit and how many are worth it.
    """
    from escala.cli.question import network_of
    from escala.report.plan_text import print_answer
    from escala.report.saved import remember, save_plan
    from escala.report.view import answer

    network = network_of(model, given)
    with working("ranking 60 plans for the front" if given["pareto"] else "searching"):
        asked = ask(network, given)
        document = answer(asked)
    is_found = document.recommended is not None
    if output is not None and is_found:
        save_plan(asked, output)
    if is_found and not remember(asked):
        note("note: the cache cannot be written, so `escala explain N` will not know these plans")
    show(document, as_json, print_answer)
    if output is not None:
        note(f"wrote {output}" if is_found else f"wrote nothing: no plan fits, {output} is untouched")
    return 0 if is_found else 1


def ask(network: "Network", given: dict[str, Any]) -> "Asked":
    """Search the plans that the options allow, on the devices that they name or on as many as it takes."""
    from dataclasses import replace

    from escala.cli.question import cluster_of, question_of
    from escala.planning.defaults import answerable, precision_code
    from escala.planning.space import SpaceLimits
    from escala.report.planwords import narrowed
    from escala.report.problem_view import refuse_less_than_a_step
    from escala.report.reasoning_ask import told_of
    from escala.report.under import under

    has_range = given["min_gpus"] is not None or given["max_gpus"] is not None
    if has_range and given["gpus"] is not None:
        raise InvalidInput("--gpus and --min-gpus or --max-gpus were given; give the number or the range")
    limits = SpaceLimits(
        fixed=narrowed(given["fix"]),
        precision=precision_code(given["precision"]),
        all_placements=given["all_placements"],
    )
    if has_range or (given["gpus"] is None and given["cluster"] is None):
        return _ask_how_many(network, given, limits)
    problem, assumed = answerable(question_of(network, given, cluster_of(given, given["gpus"])))
    refuse_less_than_a_step(problem)
    problem, told = told_of(under(problem, given["calibration"]), limits, given)
    return replace(_searched(problem, assumed, limits, given, problem.cluster), told=told)


def _ask_how_many(network: "Network", given: dict[str, Any], limits: "SpaceLimits") -> "Asked":
    """The scaling curve, then the plans on the fewest devices that fit."""
    from dataclasses import replace

    from escala.cli.question import cluster_of, question_of
    from escala.planning.defaults import MOST_TRIED_DEVICES, answerable
    from escala.planning.scaling import curve, on
    from escala.report.planwords import objective_of
    from escala.report.problem_view import refuse_less_than_a_step
    from escala.report.reasoning_ask import curve_told
    from escala.report.under import under

    least, most = given["min_gpus"] or 1, given["max_gpus"] or MOST_TRIED_DEVICES
    if given["batch"] is not None:
        raise InvalidInput("--batch compares batches on one number of devices; add --gpus N")
    if least > most:
        raise InvalidInput(f"--min-gpus {least} is above --max-gpus {most}; give a range that is not empty")
    whole = cluster_of(given, most if given["cluster"] is None else given["max_gpus"])
    problem, assumed = answerable(question_of(network, given, whole))
    refuse_less_than_a_step(problem)
    objective, own = objective_of(given["objective"]), given["calibration"]
    points = curve(under(problem, own), limits, least=least, most=whole.devices, objective=objective)
    devices = points.fewest or whole.devices
    smaller = replace(problem, cluster=cluster_of(given, devices)) if given["gpu"] else on(problem, devices)
    smaller = under(smaller, own)
    told = curve_told(problem, given)
    return replace(_searched(smaller, assumed, limits, given, whole), curve=points, told=told)


def _searched(
    problem: "Problem",
    assumed: "tuple[Assumed, ...]",
    limits: "SpaceLimits",
    given: dict[str, Any],
    whole: "Cluster",
) -> "Asked":
    """The ranking on the devices of the problem; what is assumed is said of the whole machine."""
    from escala.planning.defaults import uncompiled
    from escala.planning.search import search
    from escala.report.front import CANDIDATES, on_front
    from escala.report.machine import assumed_machine
    from escala.report.planwords import objective_of
    from escala.report.view import Asked

    objective, top = objective_of(given["objective"]), given["top"]
    found = search(
        problem,
        limits,
        objective=objective,
        top=CANDIDATES if given["pareto"] else top,
        tolerance=given["tolerance"],
    )
    has_energy = found.ranking is not None and found.ranking.footprint.energy_j is not None
    machine = assumed_machine(whole, given, has_energy=has_energy)
    asked = Asked(
        problem=problem,
        limits=limits,
        found=found,
        assumed=(*assumed, *uncompiled(problem, limits), *machine),
    )
    return on_front(asked, top) if given["pareto"] else asked
