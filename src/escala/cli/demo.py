"""`escala demo`: the whole way once, on this machine, then on a network and a machine that all know."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from escala.cli.options import Number, examples, json_option
from escala.cli.output import console, json_bytes, note, stdout_kept, working, write_json
from escala.cli.verb import Verb

if TYPE_CHECKING:
    from rich.console import Console

    from escala.report.view import Asked

# What a laptop can train in hours or days, whatever it measures: in fp32, which every bench times.
HERE: Final = ("gpt2", "--precision", "fp32", "--seq", "256", "--global-batch", "8", "--tokens", "10e6")
# What two ranks of any machine train in a minute; compiling takes as long.
TRAINED: Final = (
    *("byte-llama", "--gpus", "2", "--precision", "fp32", "--seq", "128", "--global-batch", "16"),
    *("--fix", "compile=off"),
)
LEARNING: Final = ("--minutes", "1", "--lr", "8e-3", "--warmup", "10")
RANKS: Final = 2
LONG_S, SHORT_S = 30.0, 12.0
BENCH, PLAN_HERE, PLAN, TIMELINE = "bench.json", "plan-here.json", "plan.json", "timeline.json"
THERE: Final = ("llama-3.1-8b", "--gpus", "8", "--gpu", "h100-sxm", "--seq", "8192", "--tokens", "15e9")


@click.command("demo", cls=Verb, epilog=examples("escala demo", "escala demo --out /tmp/demo --json"))
@click.option("--out", default="escala-demo", metavar="DIR", show_default=True, help="Folder for the files.")
@click.option(
    "--budget",
    type=Number(5.0, 3600.0),
    metavar="SECONDS",
    help="Time for measuring this machine.  [30 with PyTorch, else 12]",
)
@json_option
def command(out: str, budget: float | None, as_json: bool) -> None:
    """Measure this machine, plan, train and verify on it, then plan Llama-3.1-8B on 8 H100 and explain that.

    With PyTorch two ranks train a network of bytes on the sources of Python's standard library for a minute,
    and run/report.html tells how; without it GPT-2 is planned only. Also writes bench.json, and plan.json and
    timeline.json of the plan for the H100, which ui.perfetto.dev opens.
    """
    from escala.measurement.bench.request import has_torch

    folder = _usable(out)
    parts, documents = _trained_parts if has_torch() else _planned_parts, {}
    shown = None if as_json else console()
    with stdout_kept() if as_json else nullcontext():
        for part in parts(folder, budget):
            documents.update({part.name: part.document} if part.name else {})
            if shown is not None:
                _show(shown, part)
    names = (BENCH, PLAN_HERE, PLAN, TIMELINE)
    files = [str(folder / name) for name in names if (folder / name).exists()]
    if as_json:
        write_json({"schema": "escala/demo@1", **documents, "files": files})
    for each in files:
        note(f"wrote {each}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One command of the demo: its line, what it came to, and what draws that, if it does not draw itself."""

    name: str = ""
    line: str = ""
    document: Any = None
    draw: Callable[["Console", Any], None] | None = None


def _show(screen: "Console", part: Part) -> None:
    """A part under the command that gives it."""
    if part.line:
        screen.print(f"$ {part.line}\n", style="bold", soft_wrap=True)
    if part.draw is not None:
        part.draw(screen, part.document)
        screen.print()


def _planned_parts(folder: Path, budget: float | None) -> Iterator[Part]:
    """Without PyTorch: measured by NumPy, planned, not trained."""
    yield _bench(folder, budget or SHORT_S, 1)
    yield _plan("here", (*HERE, "--cluster", str(folder / BENCH)))
    yield from _there(folder)


def _trained_parts(folder: Path, budget: float | None) -> Iterator[Part]:
    """With PyTorch: two ranks of this machine measured, planned, trained and verified."""
    yield _bench(folder, budget or LONG_S, RANKS)
    plan = str(folder / PLAN_HERE)
    yield _plan("here", (*TRAINED, "--cluster", str(folder / BENCH)), plan)
    options = (plan, *LEARNING, "-o", str(_new(folder / "run")))
    yield Part(line=f"escala train {' '.join(options)}")
    yield Part(name="trained", document=_trained(options), draw=lambda screen, _: screen.print())
    yield from _there(folder)


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


def _bench(folder: Path, budget_s: float, ranks: int) -> Part:
    """This machine, written down; a person who interrupts the measurement wants no demo."""
    from escala.cli.bench import measured
    from escala.measurement.bench.local import local_ranks
    from escala.measurement.bench.request import Request, checked_folder
    from escala.report.bench_text import print_bench
    from escala.wholefile import write_whole

    kind, started_s = "cpu" if ranks > 1 else None, time.perf_counter()
    asked = Request(kind=kind, budget_s=budget_s, folder=checked_folder(None), started_s=started_s)
    with local_ranks(ranks, ("--device=cpu", f"--budget={budget_s}", "--ranks=1")):
        document = measured(asked)
    if document is None or document.is_interrupted:
        raise KeyboardInterrupt
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / BENCH, json_bytes(document))
    more = f" --device cpu --ranks {ranks}" if ranks > 1 else ""
    line = f"escala bench{more} --budget {budget_s:g} -o {folder / BENCH}"
    return Part(name="bench", line=line, document=document, draw=print_bench)


def _plan(name: str, options: tuple[str, ...], path: str | None = None) -> Part:
    """A plan, written to a file where one is named."""
    from escala.report.plan_text import print_answer
    from escala.report.saved import save_plan
    from escala.report.view import answer

    with working("planning"):
        asked = _asked(*options)
        document = answer(asked)
    if path is not None:
        save_plan(asked, path)
    line = " ".join(("escala plan", *options, *(("-o", path) if path else ())))
    return Part(name=name, line=line, document=document, draw=print_answer)


def _there(folder: Path) -> Iterator[Part]:
    """A network and a machine that all know: planned and explained."""
    from escala.report.explain_text import print_explained
    from escala.report.explain_view import explained
    from escala.report.plan_text import print_answer
    from escala.report.saved import plan_file, remember, save_plan, save_timeline
    from escala.report.view import answer

    with working("planning"):
        asked = _asked(*THERE)
        file, document = plan_file(asked), answer(asked)
    save_plan(asked, str(folder / PLAN))
    save_timeline(file, file.recommended, str(folder / TIMELINE))
    remember(asked)
    line = f"escala plan {' '.join(THERE)}"
    yield Part(name="plan", line=line, document=document, draw=print_answer)
    story = explained(file, file.recommended)
    yield Part(name="explain", line="escala explain", document=story, draw=print_explained)


def _new(folder: Path) -> Path:
    """A folder of this name that holds no run yet: run, run-2, run-3..."""
    later = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(each for each in chain((folder,), later) if not each.exists())


def _trained(options: tuple[str, ...]) -> Any:
    """Train as the options say; what it came to, as its file has it."""
    from escala.cli.train import command as train
    from escala.report.train_view import read_result

    context = train.make_context("train", list(options))
    if context.command.invoke(context):
        raise KeyboardInterrupt
    return read_result(options[-1])


def _asked(model: str, *options: str) -> "Asked":
    from escala.cli.plan import ask
    from escala.cli.plan import command as plan
    from escala.cli.question import network_of

    given = _options(plan, model, options)
    return ask(network_of(model, given), given)


def _options(plan: click.Command, model: str, options: tuple[str, ...]) -> dict[str, Any]:
    """The options of `escala plan` as it would parse them."""
    context = plan.make_context("plan", [model, *options])
    return {
        name: value for name, value in context.params.items() if name not in ("model", "as_json", "output")
    }
