"""Reasons behind a plan for people: the same devices first, then more devices, then bounds."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from escala.planning.tuning import Setting
from escala.report.layout import (
    QUIET,
    STRONG,
    VERDICT_STYLES,
    Chunk,
    add_row,
    flow,
    hanging,
    put,
    put_table,
    room,
    table_of,
)
from escala.report.numbers import count, energy, money, plural, seconds, short, span
from escala.report.reasoning import (
    BatchView,
    FloorView,
    GranularityView,
    GrowthView,
    KeptView,
    LoaderView,
    Reasons,
    SettingView,
    SizeView,
    StopView,
    TargetPointView,
    TargetView,
)
from escala.units import digits, percent

MOST: Final = 3
"""Settings of each kind and sizes that the short form shows."""


def print_short(console: Console, given: Reasons) -> None:
    """At most ten lines: the largest gains, the next sizes, the floor, the batch, the loader."""
    width = room(console)
    hanging(console, "Tune", [*_used(given.settings, width, MOST), *_open(given.settings, width, MOST)])
    hanging(console, "Grow", _growth_lines(given.growth, width))
    hanging(console, "Floor", flow(floor_words(given.floor), width))
    hanging(console, "Batch", flow(batch_words(given.batch), width))
    for label, words in (("Loader", loader_words(given.loader)), ("Keeps", kept_words(given.kept))):
        hanging(console, label, flow(words, width))
    put(console)


def print_full(console: Console, given: Reasons) -> None:
    """Everything: all settings, all sizes with the laws, floors, granularity, batch."""
    put(console, Text("At the same devices", style=STRONG))
    table = table_of(
        console, (("setting", "text"), ("instead of", "left"), ("saves", "right"), ("memory", "right"))
    )
    for each in given.settings:
        saved = f"{seconds(each.saved_s)}, {percent(each.share)}"
        name = Text(_setting(each), style="" if each.is_used else "green")
        name.append("" if each.is_used else " (not in the plan)", style=QUIET)
        add_row(table, name, each.other, saved, f"× {each.memory_ratio:.2f}")
    put_table(console, table)
    print_growth(console, given.growth)
    width = room(console)
    hanging(console, "Floor", flow(_floors(given.floor), width))
    hanging(console, "Grain", flow(_grain(given.granularity), width))
    hanging(console, "Batch", flow(batch_words(given.batch), width))
    put(console)


def _used(given: Sequence[SettingView], width: int, most: int) -> list[Text]:
    used = [each for each in given if each.is_used][:most]
    words: list[Chunk] = [_saves(each) for each in used]
    return flow([Text("in use: ").append(words[0]), *words[1:]], width) if words else []


def _open(given: Sequence[SettingView], width: int, most: int) -> list[Text]:
    others = [each for each in given if not each.is_used][:most]
    words: list[Chunk] = [_saves(each) for each in others]
    return flow([Text("not yet: ").append(words[0]), *words[1:]], width) if words else []


def _saves(given: SettingView) -> Text:
    return Text(saving(given))


def saving(given: SettingView | Setting) -> str:
    """A setting, and the seconds and the share of a step that it saves."""
    return f"{_setting(given)} −{seconds(given.saved_s)} ({percent(given.share)})"


def _setting(given: SettingView | Setting) -> str:
    return f"no {given.name}" if given.value == "none" else f"{given.name} {given.value}"


def _growth_lines(given: GrowthView, width: int) -> list[Text]:
    """The next two sizes, and where it stops."""
    lines = [row for each in given.sizes[1:MOST] for row in flow(size_words(each), width)]
    return [*lines, *flow(end_words(given), width)]


def size_words(given: SizeView) -> list[Chunk]:
    """What so many devices buy, against the size before."""
    words: list[Chunk] = [
        f"{count(given.devices)} GPUs: {given.speedup:.2f} × as fast",
        f"{percent(given.efficiency)} kept",
    ]
    pairs = ((given.energy_j_per_saved_hour, energy), (given.cost_per_saved_hour, money))
    prices = [f"{'−' if value < 0 else '+'}{show(abs(value))}" for value, show in pairs if value is not None]
    return [*words, f"{', '.join(prices)} a saved hour"] if prices else words


def end_words(given: GrowthView) -> list[Chunk]:
    """Where more devices stop paying, and what bends the curve."""
    if given.stop is not None:
        return stop_words(given.stop, given.keep)
    if given.ends:
        return [f"ends there: {given.ends}"]
    if len(given.sizes) < 2:
        return ["no other size of this layout can be run"]
    return [f"{percent(given.keep)} is kept on all of these"]


def stop_words(given: StopView, keep: float) -> list[Chunk]:
    """Devices, share kept, the term, and the link that would move it."""
    moved = "no link moves it"
    if given.link_efficiency is not None:
        moved = f"{given.link_ratio:g} × {given.link} would keep {percent(given.link_efficiency)}"
    return [
        f"below {percent(keep)} from {count(given.devices)} GPUs on ({percent(given.efficiency)})",
        f"bent by {given.term_title}, {percent(given.term_share)} of the step there",
        moved,
    ]


def print_growth(console: Console, given: GrowthView) -> None:
    """A line a size with speed-up, Karp-Flatt, Amdahl and Gustafson."""
    if len(given.sizes) < 2:
        hanging(console, "Grow", flow(end_words(given), room(console)))
        return
    title = "More devices, a degree doubled each time" if given.is_same_layout else "More devices, by theory"
    put(console, Text(title, style=STRONG))
    heads = ("GPUs", "step", "speed-up", "kept", "Karp-Flatt", "Amdahl", "Gustafson", "a saved hour")
    table = table_of(console, [(each, "right") for each in heads])
    for each in given.sizes:
        add_row(table, *size_row(each))
    put_table(console, table)
    lines = [end_words(given), _trend(given), _least(given)]
    hanging(console, "Stops", [row for each in lines for row in flow(each, room(console))])
    put(console)


def size_row(given: SizeView) -> tuple[str, ...]:
    """One size of the table."""
    saved = given.energy_j_per_saved_hour
    return (
        count(given.devices),
        seconds(given.step_s),
        f"{given.speedup:.2f}",
        percent(given.efficiency),
        "" if given.serial_share is None else f"{given.serial_share:.3f}",
        "" if given.amdahl is None else f"≤ {digits(given.amdahl)}",
        "" if given.gustafson is None else f"{given.gustafson:.2f}",
        "" if saved is None else f"{'−' if saved < 0 else '+'}{energy(abs(saved))}",
    )


def _trend(given: GrowthView) -> list[Chunk]:
    words = {
        "flat": "Karp-Flatt is flat: what is lost behaves like serial work",
        "rising": "Karp-Flatt rises: what is lost is overhead that grows with the devices",
        "falling": "Karp-Flatt falls: larger sizes lose less than the first doubling did",
    }
    return [] if given.trend is None else [words[given.trend]]


def _least(given: GrowthView) -> list[Chunk]:
    words = (("energy", given.least_energy_devices), ("money", given.least_cost_devices))
    return [f"least {name} on {count(at)} GPU{plural(at)}" for name, at in words if at is not None]


def floor_words(given: FloorView) -> list[Chunk]:
    """The highest bound and the gap to it."""
    return [
        f"no schedule beats {seconds(given.floor_s)} ({given.highest})",
        f"the step is {percent(given.gap)} above",
    ]


def _floors(given: FloorView) -> list[Chunk]:
    parts = (("work / devices", given.work_s), ("longest chain", given.chain_s), ("traffic", given.link_s))
    words: list[Chunk] = [f"{name} {seconds(value)}" for name, value in parts]
    return [*words, f"the step is {percent(given.gap)} above"]


def _grain(given: GranularityView) -> list[Chunk]:
    parts = (("bucket", given.bucket), ("layer", given.layer), ("stage", given.stage))
    words: list[Chunk] = [f"{name} {digits(value)}" for name, value in parts if value is not None]
    return ["computing over communicating:", *words] if words else ["nothing is sent"]


def batch_words(given: BatchView) -> list[Chunk]:
    """The batch beside the critical one, and whether it buys speed with samples."""
    if given.critical is None or given.more_samples is None:
        return [f"critical batch unknown: {given.unknown}; --critical-batch gives it"]
    known, style = given.critical, VERDICT_STYLES["risky"]
    ends = f"above {short(known.low)}" if known.high is None else f"{short(known.low)} to {short(known.high)}"
    kind = given.source if given.is_measured else "prior"
    words: list[Chunk] = [
        f"{count(given.global_batch)} samples; the critical batch is {short(known.value)} ({ends}, {kind})",
        f"what small batches reach takes {percent(given.more_samples.value)} more samples{_run(given)}",
    ]
    if given.buys_speed != "no":
        maybe = "" if given.buys_speed == "yes" else "perhaps "
        words.append(Text(f"{maybe}buys speed with accuracy: the same samples teach less", style=style))
    return words


def _run(given: BatchView) -> str:
    """Time, energy and money to where the tokens of the run lead in small batches."""
    run = given.to_target
    if run is None:
        return ""
    parts = [seconds(run.duration_s.value)]
    parts += [] if run.energy_j is None else [energy(run.energy_j)]
    parts += [] if run.cost_usd is None else [money(run.cost_usd)]
    return f": {', '.join(parts)}"


def loader_words(given: LoaderView | None) -> list[Chunk]:
    """What the loader feeds beside what the plan takes."""
    if given is None:
        return []
    pair = (
        f"feeds {short(given.fed_samples_per_s)} samples/s, the plan takes {short(given.taken_samples_per_s)}"
    )
    if not given.is_bound:
        return [pair, "it keeps up"]
    return [pair, Text(f"the step waits for it: {seconds(given.step_s)}", style=VERDICT_STYLES["risky"])]


def kept_words(given: KeptView | None) -> list[Chunk]:
    """Which batch keeps an efficiency."""
    if given is None:
        return []
    what = f"{percent(given.keep)} on {count(given.devices)} GPUs against {count(given.base_devices)}"
    today: list[Chunk] = []
    if given.today_efficiency is not None:
        today = [f"batch {count(given.today_batch)} keeps {percent(given.today_efficiency)}"]
    if given.batch is None:
        tried = (
            f"no batch up to {count(given.largest_batch)} keeps {what}: that one {percent(given.efficiency)}"
        )
        return [tried, *today]
    return [f"batch {count(given.batch)} keeps {what}, with {given.plan_title}", *today]


def print_target(console: Console, given: TargetView, rule: str) -> None:
    """A line for each batch: samples, time, energy and money to the target."""
    put(console, Text("To the same target with the best plan of each global batch", style=STRONG))
    heads = ("batch", "step", "samples", "time", "", "energy", "cost")
    rows = [target_row(each) for each in given.points]
    there = [any(cells) for cells in zip(*rows, strict=True)]
    columns = [(head, "right") for head, is_there in zip(heads, there, strict=True) if is_there]
    table = table_of(console, columns)
    for each, cells in zip(given.points, rows, strict=True):
        style = STRONG if each.global_batch == given.chosen_batch else ""
        row = (Text(cell, style=style) for cell, is_there in zip(cells, there, strict=True) if is_there)
        add_row(table, *row)
    put_table(console, table)
    for line in (_target_words(given), _rate_words(given, rule)):
        put(console, Text(line, style=QUIET), indent=2)
    put(console)


def _target_words(given: TargetView) -> str:
    reference = f"{short(given.total_tokens)} tokens or images reach at batch {count(given.reference_batch)}"
    return f"the target is what {reference}; ends: doubt of step and critical batch"


def _rate_words(given: TargetView, rule: str) -> str:
    last = given.points[-1]
    ratio = digits(last.learning_rate_ratio)
    return f"learning rate by the {rule} rule: × {ratio} at {count(last.global_batch)}, after a warm-up"


def target_row(given: TargetPointView) -> tuple[str, ...]:
    """One batch of the table; empty where nothing is known."""
    time, most = given.duration_s, given.duration_s.high
    ends = f"(above {seconds(time.low)})" if most is None else span(time.low, most, seconds)
    return (
        count(given.global_batch),
        seconds(given.step_s),
        short(given.samples.value),
        seconds(time.value),
        ends,
        "" if given.energy_j is None else energy(given.energy_j),
        "" if given.cost_usd is None else money(given.cost_usd),
    )
