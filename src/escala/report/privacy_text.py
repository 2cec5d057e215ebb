"""What noise costs and buys, for people. Computes nothing."""

from rich.console import Console
from rich.text import Text

from escala.report.layout import STRONG, add_row, flow, hanging, put, put_table, room, table_of
from escala.report.numbers import count, plural
from escala.report.privacy_view import OtherWay, PrivacyAnswer
from escala.units import digits

WAYS = {
    "poisson": "each client by chance (poisson)",
    "uniform": "a fixed number (uniform)",
    "all": "every client, every round",
}


def print_privacy(console: Console, given: PrivacyAnswer) -> None:
    """Everything that `escala federate privacy` shows."""
    put(
        console,
        f"{count(given.clients)} clients, {count(given.clients_per_round)} a round,"
        f" {count(given.rounds)} round{plural(given.rounds)}, delta {given.delta:g}, {given.place} noise",
    )
    put(console, Text(_verdict(given), style=STRONG))
    put(console)
    if given.sampler is not None and given.neighbours is not None:
        hanging(console, "By", flow([given.sampler], room(console)))
        hanging(console, "Hides", flow([given.neighbours], room(console)))
    hanging(console, "Note", flow(given.notes, room(console)))
    put(console)
    if given.spent:
        table = table_of(console, (("after rounds", "right"), ("epsilon", "right"), ("", "text")))
        for each in given.spent:
            add_row(table, count(each.rounds), digits(each.epsilon), "")
        put_table(console, table)
    if given.others:
        put(console, "The same noise, clients drawn another way:")
        _print_others(console, given.others)


def _verdict(given: PrivacyAnswer) -> str:
    if given.epsilon is None or given.noise_ratio is None:
        return f"No epsilon: {given.why_none}"
    told = f"noise of {digits(given.noise_ratio, 4)} × clip costs epsilon {digits(given.epsilon)}"
    if given.wanted_epsilon is None:
        return told[:1].upper() + told[1:]
    return (
        f"For epsilon {digits(given.wanted_epsilon)}: noise of at least {digits(given.noise_ratio, 4)} × clip"
    )


def _print_others(console: Console, others: tuple[OtherWay, ...]) -> None:
    table = table_of(console, (("drawn", "text"), ("a round", "right"), ("epsilon", "right")))
    for each in others:
        add_row(table, WAYS[each.selection], count(each.clients_per_round), digits(each.epsilon))
    put_table(console, table)
