"""The answer to `check` for people: findings as of a compiler, then the prediction. Computes nothing."""

from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.model.explain import LEDGER, TERMS
from escala.report.check_answer import (
    CheckAnswer,
    EstimateView,
    FileView,
    FindingView,
    FixView,
    OtherPlanView,
    TrafficView,
)
from escala.report.layout import (
    QUIET,
    STRONG,
    VERDICT_STYLES,
    add_row,
    flow,
    folded,
    glued,
    hanging,
    put,
    put_table,
    put_whole,
    room,
    table_of,
    width_of,
)
from escala.report.numbers import SHOWN_ROUTING_BYTES, count, gib, in_percent, plural, seconds, short, span
from escala.units import MOST_PERCENT, digits, percent, show_bytes, show_seconds

STYLES: Final = {"error": "red", "warning": "yellow", "note": "cyan"}
PHASES: Final = {
    "load": "load",
    "init": "init",
    "loss": "loss",
    "backward": "backward",
    "step": "optimizer step",
    "eval": "evaluation",
    "save": "save",
}
LEAST_SHARE: Final = 0.02
MOST_LINES: Final = 24
CONFIGURATIONS: Final = (".json", ".yaml", ".yml", ".toml")


def print_checked(console: Console, given: CheckAnswer) -> None:
    """Everything that `escala check` shows."""
    for each in given.findings:
        _print_finding(console, each)
    _print_files(console, given)
    if given.estimate is not None:
        _print_estimate(console, given.estimate)
    for missing in given.missing:
        hanging(console, "No", flow([f"{missing.what}; add {missing.add}"], room(console)), style="yellow")
    assumed = [f"{each.name} {each.value} ({each.reason}; {each.option})" for each in given.assumptions]
    hanging(console, "Taken", flow(assumed, room(console)))
    hanging(console, "Gaps", flow([f"not modelled: {each}" for each in given.gaps], room(console)))
    if given.fix is not None:
        _print_fix(console, given.fix)
    _print_end(console, given)


def _print_finding(console: Console, each: FindingView) -> None:
    where = (
        ""
        if each.file is None
        else f"{one_line(each.file, 200)}:{each.line}: "
        if each.line
        else f"{each.file}: "
    )
    said = Text.assemble((f"{each.severity}: ", STYLES[each.severity]), (each.what, STRONG))
    if len(where) > width_of(console) // 2:
        put_whole(console, where.rstrip())
        put(console, said)
    else:
        put(console, Text.assemble(where, said))
    if each.text:
        put(console, Text(one_line(each.text, room(console)), style=QUIET), indent=4)
    hanging(console, "why", folded(Text(each.why), room(console)))
    hanging(console, "fix", folded(Text(each.fix + (" (--fix)" if each.is_fixable else "")), room(console)))
    put(console, Text(f"[{each.rule}]", style=QUIET), indent=9)
    put(console)


def _print_files(console: Console, given: CheckAnswer) -> None:
    read = [_file(each) for each in given.files if each.tool is not None]
    hanging(console, "Read", flow(read, room(console)))
    unread = [f"{each.name}: no tool that escala reads" for each in given.files if each.tool is None]
    hanging(console, "Unread", flow(unread, room(console)), style="yellow")


def _file(each: FileView) -> str:
    return f"{one_line(each.name)} as {each.title} {each.version} ({each.version_is})"


def _print_estimate(console: Console, given: EstimateView) -> None:
    memory, host = given.memory_bytes, given.host_memory_bytes
    put(console)
    line = Text.assemble(
        (given.verdict.capitalize(), f"{STRONG} {VERDICT_STYLES[given.verdict]}"),
        f": {gib(memory.needed)} of {gib(memory.capacity)} GiB a device {span(memory.low, memory.high, gib)}",
    )
    if host.capacity is not None and host.verdict != "fits":
        line.append(
            f"; {gib(host.running)} to {gib(host.most)} of {gib(host.capacity)} GiB of a node's memory"
        )
    if given.verdict == "risky" and memory.routing >= SHOWN_ROUTING_BYTES:
        line.append(f"; uneven routing up to +{gib(memory.routing)} GiB")
    put(console, line)
    what = f"{given.network} · {short(given.parameters)} parameters · {given.method} · {given.optimizer}"
    batch = f"seq {count(given.sequence_tokens)} · global batch {count(given.global_batch)}"
    hanging(console, "Job", flow([what, batch, f"{given.cluster}"], room(console)))
    plan = [glued(given.plan_title), str(given.plan["precision"]), f"as {given.engine} runs it"]
    hanging(console, "Plan", flow(plan, room(console)))
    _print_memory(console, given)
    _print_speed(console, given)
    if given.change is not None:
        _print_change(console, given.change)
    elif given.verdict == "does not fit":
        hanging(console, "Change", [Text("no change of this job was found that fits")], style="red")
    _print_better(console, given)
    hanging(console, "Note", flow(given.notes, room(console)))


def _print_memory(console: Console, given: EstimateView) -> None:
    memory, host = given.memory_bytes, given.host_memory_bytes
    phases = [f"{title} {gib(memory.by_phase[name])}" for name, title in PHASES.items()]
    hanging(console, "Device", flow([Text("GiB in use: ").append(phases[0]), *phases[1:]], room(console)))
    held = sorted(memory.by_kind.items(), key=lambda kind: -kind[1])[:4]
    kinds = [f"{LEDGER[f'{name}_bytes'][0]} {gib(size)}" for name, size in held if size > 0]
    hanging(console, "", flow([Text("largest: ").append(kinds[0]), *kinds[1:]], room(console)))
    most = f" to {gib(host.most)}" if host.most > host.running else ""
    known = ", its memory is not known" if host.capacity is None else f" of {gib(host.capacity)}"
    texts = [
        f"GiB a node: running {gib(host.running)}{most}{known}",
        "" if host.load is None else f"{gib(host.load)} where every rank loads all weights",
    ]
    hanging(console, "Host", flow(texts, room(console)))


def _print_speed(console: Console, given: EstimateView) -> None:
    step, rate = given.step_s, given.tokens_per_s_per_device
    texts = [
        f"step {seconds(step.value)} {span(step.low, step.high, seconds)}",
        f"{digits(rate.value)} tok/s a device {span(rate.low, rate.high, digits)}",
        f"MFU {percent(given.mfu)}",
    ]
    if given.run is not None:
        texts.append(f"{short(given.run.tokens)} tokens in {seconds(given.run.duration_s.value)}")
    hanging(console, "Speed", flow(texts, room(console)))
    terms = sorted(given.terms_s.items(), key=lambda term: -term[1])
    large = [(name, value) for name, value in terms if value > LEAST_SHARE * step.value]
    shares = [f"{TERMS[name][0]} {in_percent(value / step.value)} %" for name, value in large[:6]]
    hanging(console, "", flow(shares, room(console)))
    if given.traffic:
        _print_traffic(console, given.traffic)
    alone = given.one_node
    if alone is not None:
        verdict = "slower than one node" if alone.speedup < 1 else f"{digits(alone.speedup)} times one node"
        text = (
            f"{count(given.devices)} devices are {verdict}, of {digits(alone.ideal)} at best: "
            f"{alone.devices} alone do {digits(alone.tokens_per_s / alone.devices)} tok/s each"
        )
        hanging(console, "Nodes", folded(Text(text), room(console)))


def _print_traffic(console: Console, traffic: tuple[TrafficView, ...]) -> None:
    put(console)
    table = table_of(
        console,
        (
            ("sent by a device in a step", "text"),
            ("over", "left"),
            ("bytes", "right"),
            ("not hidden", "right"),
        ),
        indent=9,
    )
    for each in traffic:
        add_row(
            table,
            each.title,
            each.link,
            show_bytes(each.sent_bytes),
            show_seconds(each.exposed_s),
        )
    put_table(console, table, indent=9)


def _print_change(console: Console, given: OtherPlanView) -> None:
    texts = [
        f"{given.title}: {given.verdict} with {gib(given.needed_bytes)} GiB a device",
        glued(given.plan_title),
        f"{digits(given.tokens_per_s_per_device)} tok/s a device",
    ]
    texts += [] if given.keeps_training else ["it changes what is trained"]
    texts += [f"set by hand: {', '.join(given.by_hand)}"] if given.by_hand else []
    hanging(console, "Change", flow(texts, room(console)), style=STRONG)


def _print_better(console: Console, given: EstimateView) -> None:
    best = given.better
    if best is None:
        other = "no plan" if given.verdict == "does not fit" else "no other plan"
        hanging(console, "Better", [Text(f"{other} of this engine fits these devices")])
    elif given.is_near_best:
        hanging(console, "Better", [Text("within 5 % of the best plan: nothing to change")])
    else:
        times = f"{digits(best.gain + 1)} times as fast" if best.gain > MOST_PERCENT else ""
        faster = times or f"{percent(best.gain)} faster"
        faster = faster if given.verdict != "does not fit" else "fits"
        gain = f"{faster}: {digits(best.tokens_per_s_per_device)} tok/s a device"
        texts = [glued(best.plan_title), gain, f"{gib(best.needed_bytes)} GiB a device, {best.verdict}"]
        hanging(console, "Better", flow(texts, room(console)))
        _print_texts(console, best)


def _print_texts(console: Console, best: OtherPlanView) -> None:
    """Short configurations as they would be written, without comments; of all other files the names."""
    shown = {name: _bare(text) for name, text in best.texts.items() if name.endswith(CONFIGURATIONS)}
    shown = {name: lines for name, lines in shown.items() if len(lines) <= MOST_LINES}
    for name, lines in shown.items():
        put(console, Text(f"{name} for {best.target}:", style=QUIET), indent=9)
        for line in lines:
            console.print(Text(f"{'':11}{line}", style=QUIET), no_wrap=True, overflow="ellipsis")
    rest = [name for name in best.texts if name not in shown]
    if rest:
        names = f"{', '.join(rest)} for {best.target}: --json, or `escala emit`"
        put(console, Text(names, style=QUIET), indent=9)


def _bare(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _print_fix(console: Console, given: FixView) -> None:
    put(console)
    for line in given.diff.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else QUIET
        console.print(Text(line, style=style), no_wrap=True, overflow="ignore", crop=False)
    for each in given.done:
        hanging(console, "Did", folded(Text(each), room(console)))
    for each in given.written:
        put_whole(console, Text.assemble(("  Wrote  ", QUIET), each))
    if not given.written:
        hanging(console, "Wrote", [Text("nothing")])
    for each in given.left_out:
        hanging(console, "Left", folded(Text(each), room(console)), style="yellow")


def _print_end(console: Console, given: CheckAnswer) -> None:
    notes = len(given.findings) - given.errors - given.warnings
    parts = [
        f"{number} {name}{plural(number)}"
        for number, name in ((given.errors, "error"), (given.warnings, "warning"), (notes, "note"))
        if number
    ]
    put(console)
    style = "green" if given.is_fine else "red"
    fits = given.estimate is None or given.estimate.verdict != "does not fit"
    parts += [] if fits else ["does not fit"]
    end = ", ".join(parts) or "nothing found"
    put(console, Text(end, style=f"{STRONG} {style}"))
