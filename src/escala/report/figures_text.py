"""The figures of one plan for people, with intervals: rate, MFU, memory, one step or the whole run."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from escala.model.host import PLACES
from escala.report.answer import Answer, PlanView, RunView
from escala.report.layout import QUIET, VERDICT_STYLES, Chunk, flow, hanging, room
from escala.report.numbers import SHOWN_ROUTING_BYTES, chance, energy, gib, mass, money, seconds, short, span
from escala.report.shared import Interval
from escala.units import digits, percent

if TYPE_CHECKING:  # `plan` shows figures too, and reads nothing that `explain` needs
    from escala.report.explain_view import Explained

SHOWN_CHANCE: Final = 0.1
"""From here on the capacity lies inside the 80 % interval of the need, so a ranking says so."""


def figures(given: "Answer | Explained", plan: PlanView, width: int) -> list[Text]:
    """Lines with rate, utilisation and memory, then with the whole run, or with one step without it."""
    lines = flow(_speed(given, plan), width, "   ")
    return lines + flow(_run(given, plan.run) if plan.run else _step(plan), width)


def unit(given: "Answer | Explained") -> str:
    """What the rate counts."""
    sample = given.workload.sample
    return "tok/s/GPU" if sample == "sequences" else f"{sample}/s/GPU"


def out_of_memory(plan: PlanView) -> Text:
    """How likely the run is to end for want of memory."""
    style = VERDICT_STYLES["risky"] if plan.out_of_memory_probability >= SHOWN_CHANCE else ""
    routing = plan.memory_bytes.routing
    why = f", uneven routing up to +{gib(routing)} GiB" if style and routing >= SHOWN_ROUTING_BYTES else ""
    where = "device out of memory" if offloads(plan) else "out of memory"
    return Text(f"{where} {chance(plan.out_of_memory_probability)}{why}", style=style)


def offloads(plan: PlanView) -> bool:
    """Whether the plan keeps anything in the memory of the host."""
    return any(plan.plan[place] != "none" for place in PLACES)


def host_words(given: "Answer | Explained", plan: PlanView) -> list[Chunk]:
    """'1,550 GiB of 1,863 a node, risky', 'with buffers up to 2,314': what a node needs in its memory."""
    needed, capacity = gib(plan.host_memory_bytes), given.cluster.host_memory_bytes
    if not offloads(plan):
        return [f"{needed} GiB a node"]
    known = "of a node, whose memory is unknown" if capacity is None else f"of {gib(capacity)} a node"
    verdict = Text(plan.host_verdict, style=VERDICT_STYLES[plan.host_verdict])
    return [
        Text.assemble(f"{needed} GiB {known}, ", verdict),
        f"with buffers up to {gib(plan.host_memory_most_bytes)} GiB",
    ]


def print_doubt(console: Console, given: "Answer | Explained") -> None:
    """How wide the intervals are, and what no published run calibrated."""
    lines = flow([given.doubt], room(console))
    for each in given.calibration.notes:
        lines += flow([Text(each, style=VERDICT_STYLES["risky"])], room(console))
    hanging(console, "Doubt", lines, style=QUIET)
    hanging(console, "Own", flow(given.calibration.own, room(console)), style=QUIET)


def _speed(given: "Answer | Explained", plan: PlanView) -> list[Chunk]:
    memory, rate = plan.memory_bytes, plan.tokens_per_s_per_device
    fit = Text(f"{gib(memory.value)} of {gib(memory.capacity)} GiB, ")
    fit.append(_verdict(given, plan))
    return [
        f"{digits(rate.value)} {unit(given)} {span(rate.low, rate.high, digits)}",
        f"MFU {_spanned(plan.intervals.mfu, percent)}",
        fit,
        out_of_memory(plan),
    ]


def _verdict(given: "Answer | Explained", plan: PlanView) -> Text:
    """The verdict, and the host's memory where that makes it worse than the device."""
    verdict, capacity = (
        Text(plan.verdict, style=VERDICT_STYLES[plan.verdict]),
        given.cluster.host_memory_bytes,
    )
    if plan.verdict == plan.device_verdict:
        return verdict
    capacity = given.cluster.host_memory_bytes
    of = "" if capacity is None else f" of {gib(capacity)}"
    return verdict.append(f" (host: {gib(plan.host_memory_bytes)}{of} GiB)")


def _spanned(given: Interval, show: Callable[[float], str], after: str = "") -> str:
    return f"{show(given.value)}{after} {span(given.low, given.high, show)}"


def _step(plan: PlanView) -> list[Chunk]:
    one = plan.intervals
    parts: list[Chunk] = [f"one step {_spanned(plan.step_s, seconds)}"]
    parts += [] if one.energy_j_per_step is None else [_spanned(one.energy_j_per_step, energy)]
    parts += [] if one.co2e_kg is None else [_spanned(one.co2e_kg, mass, " CO2e")]
    parts += [] if one.cost is None else [_spanned(one.cost, money)]
    return parts


def _run(given: "Answer | Explained", run: RunView) -> list[Chunk]:
    """Time, device-hours, energy, carbon and money of the whole run, as far as they are known."""
    cluster, sample = given.cluster, given.workload.sample
    what = "tokens" if sample == "sequences" else sample
    place = f" CO2e in {cluster.country}" if cluster.country else " CO2e"
    parts: list[Chunk] = [
        f"{short(run.tokens)} {what}: {_spanned(run.duration_s, seconds)}",
        f"{digits(run.device_hours.value)} GPU-h",
    ]
    parts += [] if run.energy_j is None else [_spanned(run.energy_j, energy)]
    parts += [] if run.co2e_kg is None else [_spanned(run.co2e_kg, mass, place)]
    price = f" at the price of {cluster.price_date}"
    parts += [] if run.cost_usd is None else [_spanned(run.cost_usd, money, price)]
    return parts
