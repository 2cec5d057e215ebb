"""A plan for other tools, for people: who can express it, what the others lack, what was written."""

from typing import Final

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.report.emit_view import EmitAnswer, NearestView, TargetView, WrittenView
from escala.report.layout import (
    QUIET,
    STRONG,
    VERDICT_STYLES,
    Chunk,
    add_row,
    flow,
    glued,
    hanging,
    put,
    put_table,
    room,
    table_of,
    width_of,
)
from escala.report.numbers import count, plural, seconds
from escala.units import difference

INDENT: Final = 4


def print_emitted(console: Console, given: EmitAnswer) -> None:
    """Everything that `escala emit` shows."""
    print_title(console, given)
    if given.written is not None:
        print_written(console, given, given.written)
    elif len(given.targets) == 1:
        print_refused(console, given, given.targets[0])
    else:
        print_targets(console, given)


def print_title(console: Console, given: EmitAnswer) -> None:
    """The plan, its network and cluster, and its name."""
    width = width_of(console)
    for each in flow([Text(part, style=STRONG) for part in glued(given.title).split(" · ")], width):
        put(console, each)
    what: list[Chunk] = [
        one_line(given.network),
        f"{count(given.devices)} × {given.accelerator}",
        f"engine {given.engine}",
        f"plan {given.digest}",
    ]
    for each in flow(what, width):
        put(console, each)
    if given.in_place_of is not None:
        put(console, Text(f"in place of {glued(given.in_place_of)}", style=QUIET))
    if given.verdict is None:
        put(console, Text("no memory or time is predicted for this plan", style=QUIET))
    elif given.verdict != "fits":
        put(console, Text(f"predicted: {given.verdict}", style=VERDICT_STYLES[given.verdict]))
    put(console)


def print_targets(console: Console, given: EmitAnswer) -> None:
    """Targets that can express the plan in one paragraph, the others each with what they lack."""
    able = [each for each in given.targets if each.is_expressed]
    lines = flow([_able(each) for each in able], room(console))
    hanging(console, "Can", lines or [Text("no target can express this plan")], style=STRONG)
    put(console)
    others = [each for each in given.targets if not each.is_expressed]
    if others:
        put(console, Text("the others, by how little their nearest plan loses", style=QUIET), indent=2)
    for each in others:
        put(console, Text(f"{each.name} {each.version}"), indent=2)
        put(console, Text(f"lacks {'; '.join(each.reasons)}", style=QUIET), indent=INDENT)
        put(console, _nearest(each.nearest), indent=INDENT)
    put(console)
    if able:
        _next(console, [_command(given, able[0])])
    elif any(each.nearest for each in others):
        _next(console, [f"{_command(given, others[0])} --nearest"])


def _able(each: TargetView) -> Text:
    """A target that can express the plan, with what its own engine makes of it where that does not fit."""
    text = Text(f"{each.name} {each.version}", style=STRONG)
    if each.engine_verdict not in (None, "fits"):
        text.append(f", {each.engine_verdict}", style=VERDICT_STYLES[str(each.engine_verdict)])
    return text


def _nearest(each: NearestView | None) -> Text:
    if each is None:
        return Text("nothing that it can express fits this", style="red")
    return Text(f"nearest: {glued(each.title)}, {_loss(each)}")


def _loss(each: NearestView) -> str:
    if each.step_ratio is None:
        return f"a step of {seconds(each.step_s)}"
    return difference(each.step_ratio, 1.0)


def print_refused(console: Console, given: EmitAnswer, target: TargetView) -> None:
    """Why the target cannot express the plan, its nearest plan, and the command that writes that."""
    put(console, Text(f"{target.title} {target.version} cannot express this plan", style="bold red"))
    width = room(console)
    hanging(console, "Lacks", [line for each in target.reasons for line in flow([each], width)])
    if target.nearest is None:
        hanging(console, "Try", flow(["nothing that it can express fits this"], width))
        _next(console, [f"escala emit {given.named}".rstrip()])
        return
    hanging(console, "Try", flow([*glued(target.nearest.title).split(" · "), _loss(target.nearest)], width))
    put(console)
    _next(console, [f"{_command(given, target)} --nearest"])


def print_written(console: Console, given: EmitAnswer, written: WrittenView) -> None:
    """The files, how to start them, and what was assumed for what the plan does not know."""
    put(console, Text(f"Wrote {len(written.files)} file{plural(len(written.files))}", style=STRONG))
    target = given.targets[0]
    if target.engine != given.engine and target.engine_step_s is not None:
        verdict = str(target.engine_verdict)
        said = Text(f"as engine {target.engine} runs it: a step of {seconds(target.engine_step_s)}, ")
        put(console, said.append(verdict, style=VERDICT_STYLES[verdict]), indent=2)
    folder = one_line(written.folder)
    hanging(console, "Files", flow([f"{folder}: {written.files[0]}", *written.files[1:]], room(console)))
    where = f"in {folder}" + (f", on each of {count(written.nodes)} nodes" if written.nodes > 1 else "")
    hanging(console, "Start", [Text(f"{where}:", style=QUIET), Text(written.launch)])
    put(console)
    if given.assumptions:
        table = table_of(console, (("assumed", "left"), ("", "text"), ("change it", "left")))
        for each in given.assumptions:
            add_row(table, each.name, Text.assemble(each.value, (f", {each.reason}", QUIET)), each.option)
        put_table(console, table)


def _command(given: EmitAnswer, target: TargetView) -> str:
    return " ".join(part for part in ("escala emit", given.named, "--to", target.name) if part)


def _next(console: Console, commands: list[str]) -> None:
    hanging(console, "Next", flow(commands, room(console)))
