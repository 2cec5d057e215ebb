"""`escala demo`: the whole way once, on a network and a machine that everybody knows."""

from typing import TYPE_CHECKING, Any

import click

from escala.cli.options import examples, json_option
from escala.cli.output import console, note, working, write_json
from escala.cli.verb import Verb

if TYPE_CHECKING:
    from escala.report.view import Asked

MODEL = "llama-3.1-8b"
OPTIONS = ("--gpus", "8", "--gpu", "h100-sxm", "--seq", "8192", "--tokens", "15e9")


@click.command("demo", cls=Verb, epilog=examples("escala demo", "escala demo --out /tmp/demo --json"))
@click.option("--out", default="escala-demo", metavar="DIR", show_default=True, help="Folder for the files.")
@json_option
def command(out: str, as_json: bool) -> None:
    """Plan Llama-3.1-8B on 8 H100, explain the choice, and write plan.json and trace.json.

    The shape of the network is its published config.json. Open trace.json in ui.perfetto.dev.
    """
    from escala.report.explain_text import print_explained
    from escala.report.explain_view import explained
    from escala.report.plan_text import print_answer
    from escala.report.saved import plan_file, remember
    from escala.report.view import answer

    with working("planning"):
        asked = _asked()
        document = answer(asked)
        file = plan_file(asked)
        story = explained(file, file.recommended)
    files = _write(asked, out)
    remember(asked)
    if as_json:
        write_json({"schema": "escala/demo@1", "plan": document, "explain": story, "files": files})
        return
    screen = console()
    screen.print(f"$ escala plan {MODEL} {' '.join(OPTIONS)}\n", style="bold", soft_wrap=True)
    print_answer(screen, document)
    screen.print("\n$ escala explain\n", style="bold")
    print_explained(screen, story)
    for each in files:
        note(f"wrote {each}")


def _asked() -> "Asked":
    from escala.cli.plan import ask
    from escala.cli.plan import command as plan

    return ask(MODEL, _options(plan))


def _options(plan: click.Command) -> dict[str, Any]:
    """The options of `escala plan` as it would parse them."""
    context = plan.make_context("plan", [MODEL, *OPTIONS])
    return {
        name: value for name, value in context.params.items() if name not in ("model", "as_json", "output")
    }


def _write(asked: "Asked", out: str) -> list[str]:
    """plan.json and trace.json of the recommended plan."""
    from pathlib import Path

    from escala.errors import InvalidInput
    from escala.report.saved import plan_file, save_plan, save_trace

    if not out.strip():
        raise InvalidInput("--out names no folder; give one, or leave it out for escala-demo")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"{folder} cannot be made ({reason}); name another place with --out") from None
    file = plan_file(asked)
    save_plan(asked, str(folder / "plan.json"))
    save_trace(file, file.recommended, str(folder / "trace.json"))
    return [str(folder / "plan.json"), str(folder / "trace.json")]
