"""Published power beside the states of the energy model: limits, computing, whole nodes. Knows no run.

Nobody publishes the power of devices that wait for the network or spin idle: those two shares stay without
evidence. The model has no term for a device below its usual limit, so rows of limited power are not scored.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from escala.calibration.failure import Unreadable
from escala.calibration.operations import NO_NUMBER, Cells, Operation, device_of, needed, number, text
from escala.calibration.rows import count
from escala.catalog.accelerators import accelerator, node_of
from escala.catalog.engines import assumptions
from escala.catalog.places import NODE_POWER_RATIO

State = tuple[str, str, str, float, float]  # operation, of, unit, published, predicted
_WATTS: Final = {"W": 1.0, "kW": 1e3}
_COUNTED: Final = re.compile(r"(\d+)\s*x\s*(\S+)")
_LIMIT: Final = re.compile(r"(\d+(?:\.\d+)?) W\b")
_NAMEPLATE: Final = re.compile(r"of (\d+(?:\.\d+)?) kW")


def _watts(row: Cells) -> float:
    unit = text(row, "unit")
    if unit not in _WATTS:
        raise Unreadable("not in watts")
    return needed(text(row, "value")) * _WATTS[unit]


def _limit_w(device: str) -> float:
    limit_w = accelerator(device).power_w
    if limit_w is None:
        raise Unreadable("no power limit in the catalog")
    return limit_w


def _limit(row: Cells) -> State:
    device = device_of(text(row, "hardware"))
    return "power limit", device, "W", _watts(row), _limit_w(device)


def _computing(row: Cells) -> State:
    """Mean of a run that computes nearly all the time: share * limit, the printed one where there is one."""
    device = device_of(text(row, "hardware"))
    printed = _LIMIT.search(text(row, "hardware"))
    limit_w = (number(printed[1]) if printed else None) or _limit_w(device)
    return "device that computes", device, "W", _watts(row), assumptions().power_compute_share * limit_w


def _node_w(row: Cells) -> tuple[str, float]:
    """Name of the device, and power of its node while all of them compute: share * limits * node ratio."""
    counted = _COUNTED.match(text(row, "hardware"))
    devices = count(counted[1]) if counted else None
    if counted is None or devices is None:
        raise Unreadable("number of devices not printed")
    device = device_of(counted[2])
    ratio = node_of(device).node_power_ratio
    computing_w = devices * assumptions().power_compute_share * _limit_w(device)
    return device, computing_w * (NODE_POWER_RATIO if ratio is None else ratio.value)


def _node(row: Cells) -> State:
    device, predicted_w = _node_w(row)
    return "node that computes", device, "W", _watts(row), predicted_w


def _nameplate(row: Cells) -> State:
    device, predicted_w = _node_w(row)
    printed = _NAMEPLATE.search(text(row, "context"))
    if printed is None:
        raise Unreadable(NO_NUMBER)
    published_w = needed(text(row, "value")) * needed(printed[1]) * 1e3
    return "node that computes", device, "W", published_w, predicted_w


def _share(row: Cells) -> State:
    return "node over its devices", "any node", "ratio", 100.0 / needed(text(row, "value")), NODE_POWER_RATIO


_STATES: Final[Mapping[str, Callable[[Cells], State]]] = {
    "power spec": _limit,
    "GPU mean power": _computing,
    "module power in LLM pretrain": _computing,
    "node power, max observed": _node,
    "node power, compute-intensive workloads / nameplate": _nameplate,
    "GPU share of server power": _share,
}


def read_power(name: str, row: Cells) -> Operation:
    """A published power beside that of the same state of the energy model."""
    what, how = text(row, "what"), text(row, "read")
    state = next((state for start, state in _STATES.items() if what.startswith(start)), None)
    if state is None:
        raise Unreadable("no state of the energy model")
    if how.startswith("second-hand"):
        raise Unreadable("told at second hand")
    operation, of, unit, published, predicted = state(row)
    return Operation(
        id=name,
        operation=operation,
        of=of,
        unit=unit,
        published=published,
        predicted=predicted,
        source=text(row, "source"),
    )


def read_power_limit(name: str, row: Cells) -> Operation:
    """Always skipped: slowdown and energy at a lower limit are no term of the model."""
    if needed(text(row, "limit_frac")) >= 1.0:
        raise Unreadable("at the usual limit, which the rows of limited power compare with")
    raise Unreadable("power limited below the usual limit, which is no term of the model")
