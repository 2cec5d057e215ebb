"""Published scaling curves: rows of one source and network that differ in their devices alone. Fits nothing.

A curve is strong where all rows have one global batch, weak where they have one batch for each device. Rates
are compared within one printed column, so no convention is needed.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from escala.calibration.rows import Row

CLOSEST: Final = 5
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Efficiency = rate of a device / that at the fewest devices, by number of devices.

    `per_doubling` is the geometric mean of what each doubling keeps.
    """

    source: str
    network: str
    accelerator: str
    software: str
    is_weak: bool
    has_experts: bool
    is_data_parallel: bool
    devices: tuple[int, ...]
    efficiency: tuple[float, ...]
    per_doubling: float
    ids: tuple[str, ...]


def nearest(
    rows: Iterable[Row], *, is_weak: bool, has_experts: bool, is_data_parallel: bool, devices: int
) -> list[Curve]:
    """Curves of the same kind, one a source and network: those that begin at about as many devices first."""
    wanted = (is_weak, has_experts, is_data_parallel)
    alike = (
        each for each in curves(rows) if (each.is_weak, each.has_experts, each.is_data_parallel) == wanted
    )
    found: dict[Key, Curve] = {}
    for each in sorted(alike, key=lambda curve: _distance(curve, devices)):
        found.setdefault((each.source, each.network), each)
    return list(found.values())[:CLOSEST]


def _distance(curve: Curve, devices: int) -> tuple[float, int, str]:
    return abs(math.log2(curve.devices[0] / devices)), -len(curve.devices), curve.ids[0]


def curves(rows: Iterable[Row]) -> list[Curve]:
    """Every curve of the rows, strong ones and weak ones."""
    groups: defaultdict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        for is_weak, batch in _batches(row):
            if row.trust == "ok" and _degrees(row) is not None and _rate(row) is not None:
                groups[(is_weak, batch, *_alike(row))].append(row)
    made = (_curve(bool(key[0]), each) for key, each in groups.items())
    return [each for each in made if each is not None]


def _batches(row: Row) -> Iterator[tuple[bool, float]]:
    if row.global_batch and row.devices:
        yield False, float(row.global_batch)
        yield True, row.global_batch / row.devices


def _degrees(row: Row) -> int | None:
    """Devices that hold one copy of the model; None where the source does not say."""
    if row.tp is None or row.pp is None:
        return None
    return row.tp * row.pp * (row.cp or 1)


def _alike(row: Row) -> Key:
    """All that has to be the same, and which column tells the rate."""
    rate = _rate(row)
    return (
        *(row.source, row.model, row.accelerator, row.framework, row.precision, row.sequence_tokens),
        *(row.tp, row.pp, row.cp, row.ep, row.sharding, row.recompute, row.offload, row.flash),
        *(row.compiled, row.method, row.micro_batch, None if rate is None else rate[0]),
    )


def _rate(row: Row) -> tuple[str, float] | None:
    """The printed column, and the rate of one device in its unit; None where the row prints none."""
    count = row.devices or 1
    found = (
        ("tokens/s per device", row.device_tokens_per_s),
        ("tokens/s", row.tokens_per_s and row.tokens_per_s / count),
        ("samples/s", row.samples_per_s and row.samples_per_s / count),
        ("step time", row.step_s and row.global_batch and row.global_batch / row.step_s / count),
        ("TFLOP/s", row.device_tflop_per_s),
        ("MFU", row.mfu_percent),
    )
    return next(((name, float(value)) for name, value in found if value), None)


def _curve(is_weak: bool, rows: Sequence[Row]) -> Curve | None:
    by_devices: defaultdict[int, list[float]] = defaultdict(list)
    for row in rows:
        rate = _rate(row)
        assert rate is not None
        assert row.devices is not None
        by_devices[row.devices].append(rate[1])
    if len(by_devices) < 2:
        return None
    devices, first = tuple(sorted(by_devices)), rows[0]
    rates = [median(by_devices[each]) for each in devices]
    kept = rates[-1] / rates[0]
    return Curve(
        source=first.source,
        network=first.model,
        accelerator=first.accelerator,
        software=first.framework,
        is_weak=is_weak,
        has_experts=bool(first.experts and first.experts > 1),
        is_data_parallel=_degrees(first) == 1,
        devices=devices,
        efficiency=tuple(each / rates[0] for each in rates),
        per_doubling=kept ** (1.0 / math.log2(devices[-1] / devices[0])),
        ids=tuple(row.id for row in rows),
    )
