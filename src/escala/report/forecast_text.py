"""A forecast of rounds for people: how many more, where the metric levels off, which curves say so."""

from rich.console import Console
from rich.text import Text

from escala.errors import one_line
from escala.federated.forecast import Family, Forecast
from escala.report.layout import STRONG, folded, hanging, put, room
from escala.report.numbers import chance, count, plural
from escala.units import digits

UNKNOWN = "unknown"


def print_forecast(console: Console, given: Forecast) -> None:
    """Everything that `escala federate forecast` shows."""
    put(console, Text(headline(given), style=STRONG))
    put(console)
    for label, text in lines(given).items():
        hanging(console, label, folded(Text(text), room(console)), style=STRONG)
    for note in given.notes:
        hanging(console, "Note", folded(Text(note), room(console)))


def headline(given: Forecast) -> str:
    """The answer in one line."""
    name, goal = one_line(given.metric.replace("_", " ")), digits(given.target)
    if given.reached_round is not None:
        return f"{name} {goal} was reached in round {count(given.reached_round)} of the pilot"
    if given.more_mid_rounds is None:
        return f"rounds to {name} {goal} are unknown: more likely than not it levels off before"
    middle = given.more_mid_rounds
    return f"{count(middle)} more round{plural(round(middle))} to {name} {goal}{_between(given)}"


def lines(given: Forecast) -> dict[str, str]:
    """What the answer rests on, by label."""
    low, mid, high = given.level
    evaluated = f"{count(given.points)} evaluated, best {digits(given.best)}"
    told = {
        "Pilot": f"{count(given.pilot_rounds)} round{plural(given.pilot_rounds)}, {evaluated}",
        "Level": f"levels off at {digits(mid)} ({digits(low)} to {digits(high)})",
        "Noise": f"{digits(given.noise)} from one evaluation to the next",
    }
    if given.reached_round is None:
        told["Curves"] = "; ".join(map(_family, given.families))
        told["Doubt"] = f"{chance(given.never_share)} that it never gets there; 80 % intervals"
    return told


def _between(given: Forecast) -> str:
    low = UNKNOWN if given.more_low_rounds is None else count(given.more_low_rounds)
    if given.more_high_rounds is None:
        return f" ({low} or more; the high end is unknown)"
    return f" ({low} to {count(given.more_high_rounds)})"


def _family(given: Family) -> str:
    more = "never" if given.more_rounds is None else f"{count(given.more_rounds)} more"
    return f"{given.name} {more} (counts {given.weight:.2f})"
