"""The shared constants at the ends of their ranges. Knows no model; what has no range stands at its value."""

from dataclasses import replace
from functools import cache
from typing import Any

from escala.catalog.engines import assumption_settings, assumptions
from escala.model.assumptions import Assumptions


@cache
def assumption_ends() -> tuple[Assumptions, Assumptions]:
    """All shared constants at the low ends, and all at the high ends."""
    settings = assumption_settings()
    low: dict[str, Any] = {name: each.low for name, each in settings.items() if each.low is not None}
    high: dict[str, Any] = {name: each.high for name, each in settings.items() if each.high is not None}
    return replace(assumptions(), **low), replace(assumptions(), **high)
