"""The answer to `plan` for people: header, what to use and why, ranking, techniques, what was assumed."""

from typing import Final

from rich.console import Console
from rich.text import Text

from escala.report.answer import Answer, FamilyView, PlanView, SitesView
from escala.report.curve_text import print_scaling
from escala.report.figures_text import (
    SHOWN_CHANCE,
    figures,
    host_words,
    offloads,
    out_of_memory,
    print_doubt,
    unit,
)
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
from escala.report.lengths_view import lengths_words
from escala.report.measured_text import lacking
from escala.report.numbers import (
    bar,
    bit_rate,
    count,
    gib,
    plans_text,
    plural,
    seconds,
    short,
)
from escala.report.reasoning import Reasons
from escala.report.reasoning_text import print_short, print_target
from escala.report.refusal_text import print_refusal
from escala.units import difference, digits, percent

INDENT: Final = 5
ADAPTED: Final = {"lora": "LoRA", "qlora": "QLoRA"}


def print_answer(console: Console, given: Answer) -> None:
    """Everything that `escala plan` shows."""
    print_header(console, given)
    if given.scaling is not None:
        print_scaling(console, given, given.scaling)
    if given.recommended is None:
        print_refusal(console, given)
    else:
        print_choice(console, given, given.plans[given.recommended])
        print_ranking(console, given)
        print_lengths(console, given)
        print_sites(console, given)
    if given.reasons is not None:
        print_reasons(console, given, given.reasons)
    if given.considered or not given.fixed:
        print_families(console, given)
    print_assumptions(console, given)
    print_foot(console, given)


def print_header(console: Console, given: Answer) -> None:
    """Workload, cluster and the size of the search, in two or three lines."""
    work, cluster, width = given.workload, given.cluster, width_of(console)
    active = "" if work.active_parameters == work.parameters else f", {short(work.active_parameters)} active"
    method = work.method if work.lora_rank is None else f"{ADAPTED[work.method]}, rank {work.lora_rank}"
    what: list[Chunk] = [
        Text(work.network, style=STRONG),
        f"{short(work.parameters)} parameters{active}",
        f"{method}, {work.precision}, {work.optimizer}",
        f"frozen {work.frozen}" if work.frozen else "",
        f"seq {count(work.sequence_tokens)}" if work.sample == "sequences" else "",
        f"{count(work.image_tokens)} of images" if work.image_tokens else "",
        f"batch {count(work.global_batch)}",
    ]
    where: list[Chunk] = [
        Text(f"{count(cluster.devices)} × {cluster.accelerator}", style=STRONG),
        f"{count(cluster.nodes)} node{plural(cluster.nodes)}",
        f"engine {given.engine}",
        f"{plans_text(given.considered)} in {digits(max(given.search_s, 0.01), 2)} s",
    ]
    measured = flow(cluster.measured, width)
    for each in (*flow(what, width), *flow(where, width), *measured, *lacking(cluster, width), Text()):
        put(console, each)


def print_choice(console: Console, given: Answer, plan: PlanView) -> None:
    """The recommended plan with its numbers and the reason for it."""
    width = room(console)
    lines = flow([Text(part, style=STRONG) for part in glued(plan.title).split(" · ")], width)
    lines += figures(given, plan, width)
    lines += host_lines(given, plan, width)
    lines += flow([f"energy unknown: {given.energy_unknown}"], width) if given.energy_unknown else []
    lines += flow([choice_reason(given, plan)], width)
    hanging(console, "Use", lines, style=STRONG)
    put(console)


def host_lines(given: Answer, plan: PlanView, width: int) -> list[Text]:
    """What a plan that offloads needs in the memory of a node."""
    if not offloads(plan):
        return []
    words = host_words(given, plan)
    return flow([Text.assemble("offloads to the host: ", words[0]), *words[1:]], width)


def choice_reason(given: Answer, plan: PlanView) -> str:
    """Why this plan: the simplest near the best, and what the best would gain."""
    first, within = given.plans[0], percent(given.tolerance)
    margin = "; nothing fits with a margin" if given.is_risky else ""
    if len(given.plans) == 1 and not given.rejected:
        return f"the only plan{margin}"
    if first.rank == plan.rank:
        ties = "; those marked = tie with it" if any(each.is_tied for each in given.plans) else ""
        return f"the best of all, and the simplest within {within} of it{ties}{margin}"
    tie = ": a tie" if plan.is_tied else ""
    gain = f"number {first.rank} {_gain(plan, first, given)}{tie}"
    return f"simplest within {within} of the best ({gain}){margin}"


def _gain(plan: PlanView, first: PlanView, given: Answer) -> str:
    if given.objective == "energy" and plan.energy_j_per_step and first.energy_j_per_step:
        return f"needs {percent(1.0 - first.energy_j_per_step / plan.energy_j_per_step)} less energy"
    return f"is {difference(first.step_s.value, plan.step_s.value)}"


def print_ranking(console: Console, given: Answer) -> None:
    """Two lines a plan: its layout with rate and memory, then its settings and why it is not the choice."""
    head = Text(f"{unit(given):>9}    GiB{' ' * 9}", style=QUIET)
    apart(console, Text("plan", style=QUIET), head, indent=INDENT, label="  #")
    for number, plan in enumerate(given.plans):
        _plan_lines(console, plan, is_chosen=number == given.recommended)
    if any(plan.is_tied for plan in given.plans):
        first = given.plans[0].rank
        tie = f"= tied with number {first}: within {percent(given.tie_share)}, where the order is noise"
        put(console, Text(tie, style=QUIET), indent=3)
    put(console)


def _plan_lines(console: Console, plan: PlanView, *, is_chosen: bool) -> None:
    layout, *settings = glued(plan.title).split(" · ")
    style, memory = (STRONG if is_chosen else ""), plan.memory_bytes
    numbers = Text(
        f"{digits(plan.tokens_per_s_per_device.value, 4):>9}   {gib(memory.value):>4} ", style=style
    )
    numbers.append(bar(memory.value / memory.capacity), style=VERDICT_STYLES[plan.verdict])
    label = f"{plan.rank:>3}{'=' if plan.is_tied else ''}"
    apart(console, Text(layout, style=style), numbers, indent=INDENT, label=label)
    quiet = Text(" · ".join(settings), style=QUIET)
    why = Text(plan.why, style="green" if is_chosen else "")
    risk = [out_of_memory(plan)] if plan.out_of_memory_probability >= SHOWN_CHANCE else []
    for line in flow([quiet, *risk, why], width_of(console) - INDENT, "   "):
        put(console, line, indent=INDENT)


def print_lengths(console: Console, given: Answer) -> None:
    """What the lengths of samples make of the recommended plan."""
    if given.lengths is None:
        return
    hanging(console, "Lengths", flow(lengths_words(given.lengths), room(console)))
    put(console)


def print_sites(console: Console, given: Answer) -> None:
    """Whether replicas should train alone between sites, and below which bandwidth."""
    if given.sites is None:
        return
    hanging(console, "Sites", flow(sites_words(given.sites, given.tolerance), room(console)))
    put(console)


def sites_words(sites: SitesView, tolerance: float) -> list[str]:
    """'below 8.3 Gb/s between sites 100 local steps gain more than 5 %: 2.42 s a step, 4.3 s without' ..."""
    gained = f"{sites.local_steps} local steps gain more than {percent(tolerance)}"
    both = f"{seconds(sites.local_step_s)} a step, {seconds(sites.plain_step_s)} without"
    below = f"below {bit_rate(sites.crossover_bytes_per_s or 0.0)} from a site"
    where = "at any bandwidth, by latency," if sites.pays_always else below
    here = f"there are {bit_rate(sites.bytes_per_s)}: {both}, {sites.local_plan_title}"
    share = f"agreeing takes at most 5 % of a step from {count(sites.least_local_steps)} local steps on"
    if sites.crossover_bytes_per_s == 0.0:
        return [f"local steps do not pay at any bandwidth: {both}"]
    return [f"{where} {gained}", here, share, "what they do to the loss is not predicted"]


def print_reasons(console: Console, given: Answer, reasons: Reasons) -> None:
    """Batches to the target where they were asked for, then the short form of what is behind the choice."""
    if reasons.target is not None:
        print_target(console, reasons.target, reasons.batch.learning_rate_rule)
    print_short(console, reasons)


def print_families(console: Console, given: Answer) -> None:
    """The best plan of every technique, and why it is not the choice."""
    table = table_of(console, (("technique", "left"), ("its best plan (DDP to HSDP alone)", "text")))
    for each in given.families:
        add_row(table, Text(each.title, style=QUIET if each.plan is None else ""), _family(given, each))
    put_table(console, table)


def _family(given: Answer, each: FamilyView) -> Text:
    if each.plan_title is None or each.step_s is None:
        return Text(each.why, style=QUIET)
    ranks = [f" (number{GLUE}{plan.rank})" for plan in given.plans if plan.plan == each.plan]
    layout = glued(each.plan_title).split(" · ")[0]
    return Text.assemble(each.why, (ranks[0] if ranks else f" · {layout}", QUIET))


def print_assumptions(console: Console, given: Answer) -> None:
    """What nobody gave."""
    if not given.assumptions:
        return
    table = table_of(console, (("assumed", "left"), ("", "text"), ("change it", "left")))
    for each in given.assumptions:
        add_row(table, each.name, Text.assemble(each.value, (f", {each.reason}", QUIET)), each.option)
    put_table(console, table)


def print_foot(console: Console, given: Answer) -> None:
    """Doubt, convention, and what to do next."""
    width = room(console)
    print_doubt(console, given)
    if given.recommended is not None:
        hanging(console, "MFU", flow([given.mfu_convention.removeprefix("model FLOP: ")], width))
        rank = given.plans[given.recommended].rank
        steps = [f"escala explain {rank}", f"escala emit {rank}", "escala plan ... -o plan.json"]
        hanging(console, "Next", flow(steps, width))
