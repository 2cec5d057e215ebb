"""Networks side by side, for people."""

from rich.console import Console
from rich.text import Text

from escala.report.compare_view import CompareView, NetworkView
from escala.report.layout import QUIET, STRONG, add_row, flow, hanging, put, put_table, room, table_of
from escala.report.numbers import count, gib, money, seconds, short
from escala.units import digits


def print_compared(console: Console, given: CompareView) -> None:
    """Size and training work, serving where a machine is named, and what is published of their quality."""
    put(console, Text("Training", style=STRONG))
    print_training(console, given)
    if given.machine is not None and given.devices is not None:
        put(console, Text(f"Serving on {count(given.devices)} × {given.machine}", style=STRONG))
        print_serving(console, given)
    for each in given.equals:
        hanging(console, "Equal", flow([f"{each.words} ({each.source})"], room(console)), style=STRONG)
    counted = f"sequences of {given.sequence_tokens:,} tokens"
    speed = "work of the first over its own: how many times as fast at equal utilisation"
    hanging(console, "Speed", flow([speed], room(console)))
    hanging(console, "FLOP", flow([counted, given.convention.removeprefix("model FLOP: ")], room(console)))
    hanging(console, "Taken", flow(given.assumptions, room(console)), style=QUIET)
    if given.machine is None:
        hanging(console, "Next", flow([given.networks[0].why], room(console)))


def print_training(console: Console, given: CompareView) -> None:
    """Parameters and FLOP of a token; the first network is the measure."""
    heads = ("parameters", "active", "FLOP/token", "speed")
    table = table_of(console, (("network", "text"), *((head, "right") for head in heads)))
    for each in given.networks:
        add_row(
            table,
            each.name,
            short(each.parameters),
            short(each.active_parameters),
            short(each.training_flop_per_token),
            f"{digits(each.training_ratio)} ×",
        )
    put_table(console, table)


def print_serving(console: Console, given: CompareView) -> None:
    """One request alone, then the largest batch; money where a price is known."""
    has_price = given.usd_per_device_hour is not None
    heads = ("GiB", "prompt", "token", "batch", "tok/s", *(("USD/Mtok",) if has_price else ()))
    table = table_of(console, (("network", "text"), *((head, "right") for head in heads)))
    for each in given.networks:
        add_row(table, each.name, *_cells(each, len(heads)))
    put_table(console, table)
    asked = f"{count(given.prompt_tokens)} + {count(given.output_tokens)} tokens"
    said = f"prompt and token of one request of {asked}"
    more = "" if given.usd_per_device_hour is None else f"; {money(given.usd_per_device_hour)} a device-hour"
    for line in flow([f"{said}; rate and price of the batch{more}"], room(console)):
        put(console, line, indent=2)
    for each in given.networks:
        if each.serving is None:
            put(console, Text(f"{each.name}: {each.why}", style=QUIET), indent=2)
    put(console)


def _cells(given: NetworkView, cells: int) -> list[str]:
    served = given.serving
    if served is None:
        return ["–"] * cells
    price = served.usd_per_million_tokens
    shown = [
        gib(served.weight_bytes),
        seconds(served.alone_prompt_s),
        seconds(served.alone_token_s),
        count(served.batch),
        digits(served.tokens_per_s),
    ]
    return [*shown, digits(price)] if price is not None else shown
