"""`escala demo`: the whole way once, first on this machine, then on a network and a machine that all know."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from escala.cli.options import Number, examples, json_option
from escala.cli.output import console, json_bytes, note, working, write_json
from escala.cli.verb import Verb

if TYPE_CHECKING:
    from rich.console import Console

    from escala.formats.bench_record import Bench
    from escala.report.view import Asked

# What a laptop can train in hours or days, whatever it measures: in fp32, which every bench times.
HERE: Final = ("gpt2", "--precision", "fp32", "--seq", "256", "--global-batch", "8", "--tokens", "10e6")
THERE: Final = ("llama-3.1-8b", "--gpus", "8", "--gpu", "h100-sxm", "--seq", "8192", "--tokens", "15e9")


@click.command("demo", cls=Verb, epilog=examples("escala demo", "escala demo --out /tmp/demo --json"))
@click.option("--out", default="escala-demo", metavar="DIR", show_default=True, help="Folder for the files.")
@click.option(
    "--budget",
    type=Number(5.0, 3600.0),
    default=12.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for measuring this machine.",
)
@json_option
def command(out: str, budget: float, as_json: bool) -> None:
    """Measure this machine briefly, plan GPT-2 on it, then Llama-3.1-8B on 8 H100, and explain the choice.

    Writes bench.json, and plan.json and trace.json of the plan for the H100. Open trace.json in
    ui.perfetto.dev.
    """
    from escala.report.explain_view import explained
    from escala.report.saved import plan_file, remember
    from escala.report.view import answer

    folder = _usable(out)
    measured = _measured(budget, folder)
    with working("planning"):
        here, there = answer(_asked(*_here(folder))), _asked(*THERE)
        file = plan_file(there)
        plan, story = answer(there), explained(file, file.recommended)
    files = [str(folder / "bench.json"), *_write(there, folder)]
    remember(there)
    if as_json:
        parts = {"bench": measured, "here": here, "plan": plan, "explain": story, "files": files}
        write_json({"schema": "escala/demo@1", **parts})
        return
    _show(console(), folder, budget, (measured, here, plan, story))
    for each in files:
        note(f"wrote {each}")


def _usable(out: str) -> Path:
    """The folder of the files, which takes files or can be made; made when there is something for it."""
    from escala.errors import InvalidInput
    from escala.measurement.bench.request import refuse_unwritable

    if not out.strip():
        raise InvalidInput("--out names no folder; give one, or leave it out for escala-demo")
    folder = Path(out)
    ground = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    refuse_unwritable(ground, "--out")
    return folder


def _measured(budget: float, folder: Path) -> "Bench":
    """This machine, written down; a person who interrupts the measurement wants no demo."""
    from escala.cli.bench import measured
    from escala.measurement.bench.request import Request, checked_folder
    from escala.wholefile import write_whole

    started_s = time.perf_counter()
    asked = Request(kind=None, budget_s=budget, folder=checked_folder(None), started_s=started_s)
    document = measured(asked)
    if document is None or document.is_interrupted:
        raise KeyboardInterrupt
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "bench.json", json_bytes(document))
    return document


def _here(folder: Path) -> tuple[str, ...]:
    return (*HERE, "--cluster", str(folder / "bench.json"))


def _asked(model: str, *options: str) -> "Asked":
    from escala.cli.plan import ask
    from escala.cli.plan import command as plan

    return ask(model, _options(plan, model, options))


def _options(plan: click.Command, model: str, options: tuple[str, ...]) -> dict[str, Any]:
    """The options of `escala plan` as it would parse them."""
    context = plan.make_context("plan", [model, *options])
    return {
        name: value for name, value in context.params.items() if name not in ("model", "as_json", "output")
    }


def _show(screen: "Console", folder: Path, budget: float, documents: tuple[Any, Any, Any, Any]) -> None:
    """Each part under the command that gives it."""
    from escala.report.bench_text import print_bench
    from escala.report.explain_text import print_explained
    from escala.report.plan_text import print_answer

    bench, here, plan, story = documents
    steps: tuple[tuple[str, Callable[[Console, Any], None], Any], ...] = (
        (f"escala bench --budget {budget:g}", print_bench, bench),
        (f"escala plan {' '.join(_here(folder))}", print_answer, here),
        (f"escala plan {' '.join(THERE)}", print_answer, plan),
        ("escala explain", print_explained, story),
    )
    for line, draw, document in steps:
        screen.print(f"$ {line}\n", style="bold", soft_wrap=True)
        draw(screen, document)
        screen.print()


def _write(asked: "Asked", folder: Path) -> list[str]:
    """plan.json and trace.json of the recommended plan."""
    from escala.report.saved import plan_file, save_plan, save_timeline

    file = plan_file(asked)
    save_plan(asked, str(folder / "plan.json"))
    save_timeline(file, file.recommended, str(folder / "trace.json"))
    return [str(folder / "plan.json"), str(folder / "trace.json")]
