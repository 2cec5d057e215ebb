"""How few devices fit and how many are worth it, for people."""

from rich.console import Console
from rich.text import Text

from escala.report.answer import Answer, ScalePointView, ScalingView
from escala.report.layout import (
    QUIET,
    STRONG,
    VERDICT_STYLES,
    add_row,
    flow,
    glued,
    hanging,
    put,
    put_table,
    room,
    table_of,
)
from escala.report.numbers import count, plural, seconds
from escala.report.reasoning_text import end_words
from escala.units import digits, percent


def print_scaling(console: Console, given: Answer, scaling: ScalingView) -> None:
    """How few devices fit and how many are worth it."""
    if scaling.fewest is None or scaling.worth is None:
        return
    margin = ", and there only without a margin" if scaling.points[0].is_risky else ""
    lines = [
        f"{count(scaling.fewest)} at least: below that nothing fits{margin}",
        f"{count(scaling.worth)} are worth it: up to there a doubling gains {percent(scaling.worth_share)} "
        "or more of the ideal",
    ]
    hanging(console, "GPUs", [row for each in lines for row in flow([each], room(console))], style=STRONG)
    put(console)
    print_curve(console, scaling.points)
    if scaling.theory is not None:
        hanging(console, "Stops", flow(end_words(scaling.theory), room(console)))
        put(console)
    devices = f"{count(given.cluster.devices)} device{plural(given.cluster.devices)}"
    put(console, Text(f"The plans on {devices}:", style=STRONG))
    near = f"the simplest within {percent(given.tolerance)} of it"
    put(console, Text(f"the table above has the best plan of each count, Use below {near}", style=QUIET))
    put(console)


def print_curve(console: Console, points: tuple[ScalePointView, ...]) -> None:
    """A line for each number of devices; device-hours where the whole run is known."""
    heads = ("step", "MFU", "scaling", *(("GPU-h",) if points[0].device_hours is not None else ()))
    table = table_of(
        console, (("GPUs", "right"), ("best plan", "text"), *((head, "right") for head in heads))
    )
    for each in points:
        hours = () if each.device_hours is None else (digits(each.device_hours),)
        values = (seconds(each.step_s), percent(each.mfu), percent(each.efficiency), *hours)
        add_row(table, count(each.devices), _best_plan(each), *values)
    put_table(console, table)


def _best_plan(each: ScalePointView) -> Text:
    layout = glued(each.plan_title).split(" · ")[0]
    return Text.assemble(layout, (" risky", VERDICT_STYLES["risky"]) if each.is_risky else "")
