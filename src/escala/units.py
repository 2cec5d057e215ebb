"""The only place that knows prefixes: text such as "80 GiB" or "400 Gb/s" to base units and back.

Inside escala every number is in base units (bytes, seconds, FLOP, bytes/s, watts, joules) as float64.
"""

import re
from typing import Final

from escala.errors import InvalidInput

KIB: Final = 2.0**10
MIB: Final = 2.0**20
GIB: Final = 2.0**30
TIB: Final = 2.0**40
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
KWH_J: Final = 3.6e6

_DECIMAL: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SMALL: Final = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
_BINARY: Final = {"Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": TIB, "Pi": 2.0**50}
_TIMES: Final = {"min": 60.0, "h": HOUR_S, "d": DAY_S}

# unit text without prefix -> (base unit, factor)
_UNITS: Final = {
    "B": ("bytes", 1.0),
    "b": ("bytes", 1 / 8),
    "B/s": ("bytes_per_s", 1.0),
    "b/s": ("bytes_per_s", 1 / 8),
    "FLOP/s": ("flop_per_s", 1.0),
    "FLOP": ("flop", 1.0),
    "W": ("w", 1.0),
    "J": ("j", 1.0),
    "Wh": ("j", HOUR_S),
    "s": ("s", 1.0),
}
_PATTERN: Final = re.compile(r"^\s*([-+]?[\d_,]*\.?\d+(?:[eE][-+]?\d+)?)\s*([A-Za-zµ/]*)\s*$")


def parse(text: str, unit: str) -> float:
    """A quantity with prefix in base units: parse("80 GiB", "bytes") is 80 * 2**30.

    `unit` is a base unit (bytes, bytes_per_s, flop_per_s, flop, w, j, s).
    Raises InvalidInput when the text is no number or its unit is another one.
    """
    match = _PATTERN.match(text)
    if match is None:
        raise InvalidInput(f"'{text}' is no quantity; write for example '{_example(unit)}'")
    number = float(match[1].replace("_", "").replace(",", ""))
    factor = _factor(match[2], unit)
    if factor is None:
        raise InvalidInput(f"'{text}' is not in {unit}; write for example '{_example(unit)}'")
    return number * factor


def _factor(text: str, unit: str) -> float | None:
    if text == "":
        return 1.0
    if unit == "s" and text in _TIMES:
        return _TIMES[text]
    for plain, (base, scale) in _UNITS.items():
        if base != unit or not text.endswith(plain):
            continue
        prefix = text[: -len(plain)]
        for table in (_SMALL, _DECIMAL, _BINARY) if unit == "s" else (_DECIMAL, _BINARY):
            if prefix in table:
                return table[prefix] * scale
    return None


def _example(unit: str) -> str:
    return {
        "bytes": "80 GiB",
        "bytes_per_s": "400 Gb/s",
        "flop_per_s": "989 TFLOP/s",
        "flop": "6e23 FLOP",
        "w": "700 W",
        "j": "412 kWh",
        "s": "12 us",
    }.get(unit, "1")


def show_bytes(value_bytes: float) -> str:
    """Bytes for people, binary: 85899345920 is '80.0 GiB'."""
    return _show(value_bytes, ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1.0, "B")))


def show_seconds(value_s: float) -> str:
    """Seconds for people: 0.0042 is '4.20 ms', 93600 is '1.08 d'."""
    steps = ((DAY_S, "d"), (HOUR_S, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
    return _show(value_s, steps, digits=3)


def show_si(value: float, unit: str) -> str:
    """Any quantity with decimal prefix: show_si(9.89e14, 'FLOP/s') is '989 TFLOP/s'."""
    steps = tuple((factor, prefix + unit) for prefix, factor in reversed(_DECIMAL.items()) if prefix != "K")
    return _show(value, steps, digits=3)


MOST_PERCENT: Final = 9.0
"""Above 900 % a factor reads better."""


def digits(value: float, significant: int = 3) -> str:
    """A number with separators in three digits: 0.0123, 4.56, 78.9, 1,230."""
    rounded = float(f"{value:.{significant}g}")
    if abs(rounded) >= 10 ** (significant - 1):
        return f"{rounded:,.0f}"
    return f"{rounded:.{significant}g}"


def percent(share: float) -> str:
    """A share as percent: whole from 1 % on, one decimal below."""
    value = share * 100
    return f"{value:,.0f} %" if abs(value) >= 0.95 else f"{value:.1f} %"


def difference(value: float, reference: float) -> str:
    """How much slower or faster: '2 % slower', '230 times slower', 'as fast'."""
    ratio = value / reference - 1.0
    if abs(ratio) < 5e-4:
        return "as fast"
    if ratio > MOST_PERCENT:
        return f"{digits(value / reference)} times slower"
    return f"{percent(abs(ratio))} {'slower' if ratio > 0 else 'faster'}"


def _show(value: float, steps: tuple[tuple[float, str], ...], digits: int = 3) -> str:
    for size, name in steps:
        if abs(value) >= size:
            return f"{_significant(value / size, digits)} {name}"
    return f"{_significant(value / steps[-1][0], digits)} {steps[-1][1]}"


def _significant(value: float, digits: int) -> str:
    whole = len(str(int(abs(value))))
    return f"{value:,.{max(0, digits - whole)}f}"
