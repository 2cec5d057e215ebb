"""Draws docs/img/plan.svg: what `escala plan` prints on a terminal. Run it after a change of the view."""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from escala.cli.plan import ask
from escala.cli.plan import command as plan
from escala.report.plan_text import print_answer
from escala.report.view import answer

ARGUMENTS = "llama-3.1-8b --gpus 8 --gpu h100-sxm --tokens 15B --top 4"
PICTURE = Path(__file__).parents[1] / "docs" / "img" / "plan.svg"
COLUMNS = 84
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # they are fetched from elsewhere; any monospace will do


def main() -> None:
    """Plan, print to a recording console, export."""
    parsed = plan.make_context("plan", ARGUMENTS.split()).params
    options = {name: value for name, value in parsed.items() if name not in ("model", "as_json", "output")}
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True, highlight=False)
    console.print(f"$ escala plan {ARGUMENTS}\n", soft_wrap=True)
    print_answer(console, answer(ask(parsed["model"], options)))
    svg = console.export_svg(title="escala plan", theme=MONOKAI, unique_id="escala-plan")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(FONTS.sub("", svg), encoding="utf-8")
    sys.stderr.write(f"wrote {PICTURE}\n")


if __name__ == "__main__":
    main()
