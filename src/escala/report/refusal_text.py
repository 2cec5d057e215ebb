"""The answer when nothing fits, for people: how many plans were looked at, why they fall, what would help."""

from rich.console import Console
from rich.text import Text

from escala.report.answer import Answer, RemedyView
from escala.report.layout import QUIET, STRONG, Chunk, flow, glued, hanging, put, room
from escala.report.numbers import count, plans_text, seconds


def print_refusal(console: Console, given: Answer) -> None:
    """Nothing fits: how many plans were looked at, why they fall, and what would help."""
    headline = "nothing fits" if given.considered else "no plan can be built"
    lines = [Text(headline, style="bold red")]
    lines += [Text(f"{plans_text(number)}: {reason}") for reason, number in given.rejected.items()]
    if given.fixed:
        fixed = ", ".join(f"{name}={','.join(values)}" for name, values in given.fixed.items())
        lines += flow([f"only plans with {fixed} were looked at, as --fix asks"], room(console))
        reasons = () if given.considered else given.broken_fix or (_rule(given),)
        lines += [line for reason in reasons for line in flow([reason], room(console))]
    hanging(console, "No", lines, style="bold red")
    put(console)
    for number, each in enumerate(given.advice):
        _remedy(console, each, "" if number else "Try")
    if given.advice:
        put(console)


def _rule(given: Answer) -> str:
    """What the fields of --fix have to keep to, so that a plan can be built."""
    return (
        f"degrees have to divide the {count(given.cluster.devices)} devices, tp also the heads and key-value "
        f"heads, dp × micro_batch the batch of {count(given.workload.global_batch)}, ep the experts; "
        f"pp is at most the {count(given.workload.layers)} layers"
    )


def _remedy(console: Console, each: RemedyView, label: str) -> None:
    chunks: list[Chunk] = [Text(each.title, style=STRONG), f"one step {seconds(each.step_s)}"]
    chunks += [Text(part, style=QUIET) for part in glued(each.plan_title).split(" · ")]
    hanging(console, label, flow(chunks, room(console)), style=STRONG)
