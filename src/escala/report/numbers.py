"""Numbers for people: prefixes, ranges, bars. Knows no model; base units come in, text goes out."""

from collections.abc import Callable
from typing import Final

from escala.units import DAY_S, GIB, HOUR_S, digits, percent, show_si

FULL: Final = "█"
EMPTY: Final = "░"
WH_J: Final = HOUR_S  # a watt for an hour
SHOWN_ROUTING_BYTES: Final = GIB / 2
"""What uneven routing may add to memory is named from here on, beside a risk."""


def count(value: float) -> str:
    """A count with separators: 1234567 is '1,234,567'."""
    return f"{value:,.0f}"


def short(value: float) -> str:
    """A large count in three digits: 8.03e9 is '8.03 B', 1.5e13 is '15 T'."""
    for size, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if float(f"{abs(value):.3g}") >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"


def plural(number: int) -> str:
    """The ending of a counted noun."""
    return "" if number == 1 else "s"


def plans_text(number: int) -> str:
    """A number of plans: '1 plan', '333,704 plans', '10.8 M plans'."""
    return f"{count(number) if number < 1_000_000 else short(number)} plan{plural(number)}"


def gib(value_bytes: float) -> str:
    """Bytes as whole GiB from 10 on, with one decimal below; what is not nothing shows as more than 0."""
    value = value_bytes / GIB
    if 0 < value < 0.05:
        return "<0.1"
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def seconds(value_s: float) -> str:
    """Seconds for people, in the unit that reads best: 93600 is '26 h', 1.4e7 is '162 days'."""
    steps = (
        (2 * 365.25 * DAY_S, 365.25 * DAY_S, "years"),
        (2 * DAY_S, DAY_S, "days"),
        (2 * HOUR_S, HOUR_S, "h"),
    )
    for least, size, name in (*steps, (300.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms")):
        if abs(value_s) >= least:
            return f"{digits(value_s / size)} {name}"
    return f"{digits(value_s / 1e-6)} µs"


def energy(value_j: float) -> str:
    """Energy for people in three digits: J, Wh, kWh, MWh, GWh, each up to a thousand."""
    if value_j < WH_J:
        return f"{digits(value_j)} J"
    for size, name in ((1e9, "GWh"), (1e6, "MWh"), (1e3, "kWh")):
        if float(f"{value_j / WH_J:.3g}") >= size:
            return f"{digits(value_j / WH_J / size)} {name}"
    return f"{digits(value_j / WH_J)} Wh"


def mass(value_kg: float) -> str:
    """Mass of CO2e for people: g, kg, then tonnes."""
    if value_kg >= 1e4:
        return f"{digits(value_kg / 1e3)} t"
    return f"{digits(value_kg)} kg" if value_kg >= 0.1 else f"{digits(value_kg * 1e3)} g"


def traffic_energy(value_j_per_byte: float) -> str:
    """Energy of traffic for people: 1.08e-4 is '108 J/MB'."""
    return f"{digits(value_j_per_byte * 1e6)} J/MB"


def money(value_usd: float) -> str:
    """US dollars: cents below 100, then whole, then millions."""
    if value_usd >= 1e6:
        return f"${value_usd / 1e6:.3g} M"
    return f"${value_usd:,.0f}" if value_usd >= 100 else f"${value_usd:.2f}"


def in_percent(share: float, sign: str = "") -> str:
    """A share in percent without its unit: 0.1159 is '11.6', 1.5 is '150'; '+' shows the sign always."""
    value = share * 100
    places = ".1f" if abs(value) < 99.95 else ",.0f" if abs(value) < 1e6 else ".0e"
    return f"{value:{sign}{places}}".replace("-", "−")


def chance(probability: float) -> str:
    """A probability in whole percent, never 0 or 100: 0.003 is 'below 1 %'."""
    if probability < 0.01:
        return "below 1 %"
    return "above 99 %" if probability > 0.99 else percent(probability)


def flop_rate(value_flop_per_s: float) -> str:
    """FLOP/s with prefix."""
    return show_si(value_flop_per_s, "FLOP/s")


def bit_rate(value_bytes_per_s: float) -> str:
    """A bandwidth as networks are sold, in bits: '10 Gb/s'."""
    return show_si(8 * value_bytes_per_s, "b/s")


def bar(share: float, width: int = 8) -> str:
    """A bar of `width` cells; a share above 1 fills it, above 0 shows at least one cell."""
    filled = min(width, max(1 if share > 0 else 0, round(share * width)))
    return FULL * filled + EMPTY * (width - filled)


def span(low: float, high: float, show: Callable[[float], str]) -> str:
    """An interval in parentheses, the unit once where both ends have the same: '(2.2 to 2.96 days)'."""
    first, last = show(low), show(high)
    number, _, name = first.partition(" ")
    return f"({number} to {last})" if last.endswith(f" {name}") else f"({first} to {last})"
