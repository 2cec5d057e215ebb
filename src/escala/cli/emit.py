"""`escala emit`: a plan as files of the framework or scheduler that a person already uses."""

from dataclasses import replace
from typing import Any

import click

from escala.cli.options import Number, Whole, Word, examples, json_option, switch
from escala.cli.output import show, working
from escala.cli.verb import Verb
from escala.errors import InvalidInput

EXAMPLES = (
    "escala emit",
    "escala emit 1 --to torchtitan -o run",
    "escala emit plan.json --to accelerate --launch slurm",
    "escala emit 2 --to deepspeed --nearest --lr 1e-4 --steps 5000",
)


@click.command("emit", cls=Verb, epilog=examples(*EXAMPLES))
@click.argument("plan", required=False)
@click.option("--to", "to", type=Word(), metavar="TARGET", help="Write files for this target.")
@click.option("-o", "--out", metavar="DIR", help="Folder for the files.  [name of the target]")
@click.option("--launch", type=Word(), metavar="NAME", help="Also a file of slurm, kubernetes or skypilot.")
@click.option("--model-path", metavar="NAME", help="Model to load.  [hub id of the catalog]")
@click.option("--data", metavar="NAME", help="Data to train on.  [a public data set]")
@click.option("--lr", type=Number(1e-12, 1e3), help="Learning rate.  [usual for the method]")
@click.option("--steps", type=Whole(1, 1_000_000_000), help="Optimizer steps.  [tokens of the plan, or 1000]")
@switch("--nearest/--no-nearest", help="Write the nearest plan that the target can express.")
@switch("--force/--no-force", help="Replace files of the same names.")
@json_option
def command(plan: str | None, as_json: bool, **given: Any) -> int:
    """Write PLAN as files of other tools, or rank the tools that can express it.

    PLAN is a plan.json, or the number of a plan of the last `escala plan`; without it, the recommended one.
    Without --to, every target is ranked: those that can express the plan, then by how little the nearest plan
    that they can express loses.
    """
    from escala.report.emit_order import Wishes
    from escala.report.emit_text import print_emitted
    from escala.report.emit_view import ranking
    from escala.report.saved import chosen_plan

    _refuse_unused(given)
    file, row = chosen_plan(plan)
    wishes = Wishes(
        model=given["model_path"], data=given["data"], learning_rate=given["lr"], steps=given["steps"]
    )
    if given["to"] is not None:
        return _write(file, row, wishes, plan or "", given, as_json)
    with working("asking every target"):
        document = ranking(file, row, wishes, plan or "")
    show(document, as_json, print_emitted)
    return 0 if any(each.is_expressed for each in document.targets) else 1


def _write(file: Any, row: int, wishes: Any, named: str, given: dict[str, Any], as_json: bool) -> int:
    """Write the files of --to, or say why not."""
    from pathlib import Path

    from escala.report.emit_files import save_files
    from escala.report.emit_text import print_emitted
    from escala.report.emit_view import emission

    with working("writing"):
        document, files = emission(
            file, row, wishes, named, to=given["to"], launch=given["launch"], is_nearest=given["nearest"]
        )
    written = document.written
    if written is not None:
        folder = given["out"] or written.folder
        save_files(files, Path(folder), may_replace=given["force"])
        document = replace(document, written=replace(written, folder=folder))
    show(document, as_json, print_emitted)
    return 0 if written is not None else 1


def _refuse_unused(given: dict[str, Any]) -> None:
    """Options that mean nothing without a target."""
    names = [name for name in ("out", "launch") if given[name] is not None]
    names += [name for name in ("nearest", "force") if given[name]]
    if names and given["to"] is None:
        option = {"out": "-o"}.get(names[0], f"--{names[0]}")
        raise InvalidInput(f"{option} goes with --to, and no target is named; `escala emit` ranks them")
