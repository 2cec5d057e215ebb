"""One plan for people: from peak to achieved, terms, memory, why not the others, what would change it."""

from typing import Final

from rich.console import Console
from rich.text import Text

from escala.report.answer import FamilyView
from escala.report.explain_view import ChangeView, Explained, TermView
from escala.report.figures_text import figures, host_words, out_of_memory, print_doubt
from escala.report.layout import (
    GLUE,
    QUIET,
    STRONG,
    VERDICT_STYLES,
    Chunk,
    add_row,
    apart,
    flow,
    glued,
    hanging,
    put,
    put_table,
    room,
    table_of,
    width_of,
)
from escala.report.load_view import load_words
from escala.report.measured_text import lacking
from escala.report.numbers import EMPTY, FULL, count, flop_rate, gib, seconds, short
from escala.report.reasoning_text import print_full
from escala.report.trace_text import print_trace
from escala.units import percent, show_bytes

SHOWN_SHARE: Final = 0.0005
BAR: Final = 20


def print_explained(console: Console, given: Explained) -> None:
    """Everything that `escala explain` shows."""
    print_title(console, given)
    if not given.terms:
        print_repairs(console, given)
        return
    hanging(console, "Gives", figures(given, given.plan, room(console)), style=STRONG)
    put(console)
    print_waterfall(console, given)
    print_terms(console, given)
    print_memory(console, given)
    if not all(each.is_plain for each in given.layer_kinds) or len(given.layer_kinds) > 1:
        print_kinds(console, given)
    if given.trace is not None:
        print_trace(console, given.trace)
    print_others(console, given)
    if given.reasons is not None:
        print_full(console, given.reasons)
    print_changes(console, given)
    width = room(console)
    print_doubt(console, given)
    hanging(console, "MFU", flow([given.mfu_convention.removeprefix("model FLOP: ")], width))
    hanging(console, "Next", flow(["escala emit, with the same plan, writes it for other tools"], width))


def print_title(console: Console, given: Explained) -> None:
    """The plan, its network and cluster, and whether it can be run."""
    work, cluster, plan = given.workload, given.cluster, given.plan
    for each in flow(
        [Text(part, style=STRONG) for part in glued(plan.title).split(" · ")], width_of(console)
    ):
        put(console, each)
    what: list[Chunk] = [
        work.network,
        f"{work.method}, {work.precision}, {work.optimizer}",
        f"frozen {work.frozen}" if work.frozen else "",
        f"seq {count(work.sequence_tokens)}" if work.sample == "sequences" else "",
        f"{count(work.image_tokens)} of images" if work.image_tokens else "",
        f"batch {count(work.global_batch)}",
        f"{count(cluster.devices)} × {cluster.accelerator}",
        f"engine {given.engine}",
    ]
    width = width_of(console)
    for each in (*flow(what, width), *flow(cluster.measured, width), *lacking(cluster, width)):
        put(console, each)
    for rule in given.broken_rules:
        put(console, Text(f"cannot be run: {rule}", style="red"))
    put(console)


def print_repairs(console: Console, given: Explained) -> None:
    """What to change in a plan that cannot be run; it has no numbers."""
    lines = [row for each in given.repairs for row in flow([each], room(console))]
    hanging(console, "Change", lines, style=STRONG)
    if given.recommended_title:
        titles = glued(given.recommended_title).split(" · ")
        hanging(console, "Or use", flow(titles, room(console)), style=STRONG)


def print_waterfall(console: Console, given: Explained) -> None:
    """Peak - what each cause takes = achieved."""
    step = seconds(given.plan.step_s.value)
    put(console, Text(f"From peak to achieved, in one step of {step}", style=STRONG))
    table = table_of(console, (("", "text"), ("", "right"), ("", "right"), ("", "left")))
    add_row(table, "peak, dense, of one device", flop_rate(given.peak_flop_per_s), "100 %", FULL * BAR)
    left = 1.0
    for fall in sorted(given.waterfall, key=lambda each: -each.share):
        sign = "−" if fall.share > 0 else "+"
        left -= fall.share
        if abs(fall.share) < SHOWN_SHARE:
            continue
        add_row(
            table, f"{sign} {fall.title}", "", f"{sign}{percent(abs(fall.share))}", _bar(left, fall.share)
        )
    achieved = flop_rate(given.achieved_flop_per_s)
    add_row(table, "= model FLOP/s (MFU)", achieved, percent(given.plan.mfu), _bar(given.plan.mfu, 0.0))
    put_table(console, table)


def _bar(left: float, lost: float) -> Text:
    """What is left after a loss, and the loss itself, on a scale to the peak."""
    before, after = round(max(0.0, left + lost) * BAR), round(max(0.0, left) * BAR)
    return Text.assemble(FULL * min(after, BAR), ("▒" * min(max(0, before - after), BAR), "red"))


def print_terms(console: Console, given: Explained) -> None:
    """Seconds of the step by term, and under each its formula with the source."""
    put(console, Text("Where the seconds go", style=STRONG))
    shown = [each for each in given.terms if abs(each.share) >= SHOWN_SHARE]
    for each in sorted(shown, key=lambda term: -term.value_s):
        numbers = Text(f"{seconds(each.value_s):>9} {percent(each.share):>7}")
        apart(console, Text(each.title), numbers, indent=2)
        put(console, _formula(each), indent=4)
    small: list[Chunk] = [Text(each.title, style=QUIET) for each in given.terms if each not in shown]
    put(console)
    hanging(console, "zero", flow(small, room(console)))
    put(console)


def _formula(each: TermView) -> Text:
    source = f" [{each.source.rstrip('.')}]" if each.source else ""
    return Text(f"{each.formula}{source}", style=QUIET)


def print_memory(console: Console, given: Explained) -> None:
    """The memory of the fullest rank by kind, and the peak of each phase."""
    memory = given.plan.memory_bytes
    title = Text(
        f"Memory of the fullest device: {gib(memory.value)} of {gib(memory.capacity)} GiB, ", style=STRONG
    )
    title.append(given.plan.device_verdict, style=VERDICT_STYLES[given.plan.device_verdict])
    put(console, title)
    need = f"80 % interval {gib(memory.low)} to {gib(memory.high)} GiB, "
    put(console, Text.assemble(need, out_of_memory(given.plan)), indent=2)
    table = table_of(console, (("kind", "left"), ("GiB", "right"), ("", "left"), ("held", "text")))
    for each in sorted(given.memory, key=lambda held: -held.held_bytes):
        if each.held_bytes > 0:
            filled = round(each.held_bytes / memory.capacity * BAR)
            chart = FULL * min(filled, BAR) + EMPTY * max(0, BAR - filled)
            add_row(table, each.title, gib(each.held_bytes), chart, each.sharing)
    put_table(console, table)
    put(console, "kinds peak in different phases: the need is that of the largest, with slack", indent=2)
    phases: list[Chunk] = [f"{name}{GLUE}{gib(held)}" for name, held in given.memory_phases_bytes.items()]
    hanging(console, "Phases", flow([Text("GiB in use: ").append(phases[0]), *phases[1:]], room(console)))
    if given.expert_load is not None:
        hanging(console, "Experts", flow(load_words(given.expert_load), room(console)))
    hanging(console, "Host", flow(host_words(given, given.plan), room(console)))
    put(console)


def print_kinds(console: Console, given: Explained) -> None:
    """Each kind of layer: its parts, its share of the work, what it keeps, what a sequence leaves in it."""
    title = "Kinds of layers" if len(given.layer_kinds) > 1 else "Kind of layer"
    put(console, Text(title, style=STRONG))
    for each in given.layer_kinds:
        size = f"{each.layers} × {short(each.parameters)} parameters, {percent(each.flop_share)} of the work"
        apart(console, Text(each.name), Text(size), indent=2)
        for part in each.parts:
            put(console, Text(part, style=QUIET), indent=4)
        left = [f"{show_bytes(each.token_bytes)} a token" if each.token_bytes else ""]
        left.append(f"{show_bytes(each.fixed_bytes)} whatever its length" if each.fixed_bytes else "")
        leaves = " and ".join(word for word in left if word)
        kept = f"keeps {show_bytes(each.kept_bytes)} a layer and micro-batch without recompute"
        ends = f"; a sequence leaves {leaves}" if leaves else ""
        put(console, Text(f"{kept}{ends}", style=QUIET), indent=4)
    put(console)


def print_others(console: Console, given: Explained) -> None:
    """The plan beside the recommended one, and every technique beside that."""
    put(console, Text("Why not the others", style=STRONG))
    if given.plan.why != "recommended" and given.recommended_title:
        put(console, f"this plan: {given.plan.why}", indent=2)
        put(console, f"recommended: {glued(given.recommended_title)}", indent=2)
    if given.plan.is_tied:
        put(
            console,
            f"tied with the first: within {percent(given.tie_share)}, where the order is noise",
            indent=2,
        )
    table = table_of(console, (("", "left"), ("", "text")))
    for each in given.families:
        add_row(table, Text(each.title, style="" if each.step_s else QUIET), _family(each))
    put_table(console, table)


def _family(each: FamilyView) -> Text:
    is_shown = each.plan_title is not None and each.step_s is not None and each.why != "recommended"
    layout = f" · {glued(each.plan_title or '').split(' · ')[0]}" if is_shown else ""
    return Text.assemble((each.why, "" if each.step_s else QUIET), (layout, QUIET))


def print_changes(console: Console, given: Explained) -> None:
    """What would make this plan faster or smaller, the best first."""
    put(console, Text("What would change it", style=STRONG))
    table = table_of(console, (("", "text"), ("step", "right"), ("memory", "right")))
    possible = [each for each in given.sensitivity if each.step_ratio is not None]
    idle = [each for each in possible if _changes_nothing(each)]
    for each in sorted(possible, key=lambda change: change.step_ratio or 1.0):
        if each not in idle:
            add_row(table, each.title, _ratio(each.step_ratio), _ratio(each.memory_ratio))
    for each in given.sensitivity:
        if each.step_ratio is None:
            add_row(table, _impossible(each), "", _ratio(each.memory_ratio))
    if idle:
        nothing = Text(f"no change: {', '.join(each.title for each in idle)}", style=QUIET)
        add_row(table, nothing, "same", "same")
    put_table(console, table)


def _changes_nothing(each: ChangeView) -> bool:
    ratios = (each.step_ratio, each.memory_ratio)
    return all(ratio is not None and abs(ratio - 1.0) < SHOWN_SHARE for ratio in ratios)


def _impossible(each: ChangeView) -> Text:
    return Text(f"{each.title}: {each.impossible}", style=QUIET)


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    change = ratio - 1.0
    if abs(change) < SHOWN_SHARE:
        return "same"
    return f"{'+' if change > 0 else '−'}{percent(abs(change))}"
