"""Samples of power and memory of GPUs: nvidia-smi as CSV, nvidia-smi dmon, dcgmi dmon. Knows no trainer.

Source: nvidia-smi --help-query-gpu and the man page of nvidia-smi (dmon); DCGM dcgmi/DeviceMonitor.cpp.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from escala.errors import InvalidInput
from escala.measurement.logs.samples import Sample, Samples, What
from escala.measurement.logs.source import OTHER_WIDTH, Source, stamp_s
from escala.units import DAY_S, MIB

UNIT: Final = re.compile(r" *(?:W|MiB|%|C|MHz)$")
NO_INDEX: Final = "no column index or uuid: all rows are taken as one device"
COLUMNS: Final = {"pwr": (What.POWER_W, 1.0), "fb": (What.DEVICE_BYTES, MIB)}
DCGM: Final = {
    "POWER": (What.POWER_W, 1.0),
    "POWR": (What.POWER_W, 1.0),
    "FBUSD": (What.DEVICE_BYTES, MIB),
}
TIME: Final = re.compile(r"(\d\d):(\d\d):(\d\d)")
DATE: Final = re.compile(r"(\d{4})(\d\d)(\d\d)")


def query_csv(source: Source) -> Samples:
    """Rows of `nvidia-smi --query-gpu=timestamp,index,power.draw,memory.used --format=csv`.

    Units are in the header, and in the cells unless nounits was asked for. The clock is local time.
    """
    is_one = True
    for number, row in enumerate(source.records()):
        plain = {name.partition(" [")[0]: cell for name, cell in row.items()}
        lane = next((plain[name].strip() for name in ("index", "uuid", "pci.bus_id") if name in plain), None)
        if number == 0:
            is_one = lane is None
            if is_one:
                source.leave(NO_INDEX)
        yield from _query(source, plain, "" if is_one else f"gpu {lane}")


def _query(source: Source, row: Mapping[str, str], lane: str) -> Samples:
    at_s = stamp_s(row.get("timestamp", ""))
    power = next((cell for name, cell in row.items() if name.startswith("power.draw")), "")
    for what, cell, factor in (
        (What.POWER_W, power, 1.0),
        (What.DEVICE_BYTES, row.get("memory.used", ""), MIB),
    ):
        value = source.number(UNIT.sub("", cell.strip()))
        if value is not None:
            yield Sample(what, value * factor, None, lane, at_s)


def dmon(source: Source) -> Samples:
    """Rows of `nvidia-smi dmon` under their header; with -o T or -o DT they have a time."""
    names: Sequence[str] = ()
    clock = _Clock()
    for line in source.lines():
        cells = line.replace("#", " ").split()
        if line.lstrip().startswith("#"):
            names = [name.lower() for name in cells] if "gpu" in cells else names
        elif names and len(cells) == len(names):
            row = dict(zip(names, cells, strict=True))
            yield from _named(source, row, COLUMNS, f"gpu {row['gpu']}", clock.read(row))
        elif cells:
            source.leave(OTHER_WIDTH)


class _Clock:
    """Seconds of rows that print a date and a time, or a time alone, which goes on after midnight."""

    def __init__(self) -> None:
        self.last_s, self.days = 0.0, 0

    def read(self, row: Mapping[str, str]) -> float | None:
        found, date = TIME.fullmatch(row.get("time", "")), DATE.fullmatch(row.get("date", ""))
        if found is None:
            return None
        if date is not None:
            return stamp_s(f"{'-'.join(date.groups())} {found[0]}")
        now_s = int(found[1]) * 3600.0 + int(found[2]) * 60.0 + int(found[3])
        self.days += now_s < self.last_s - DAY_S / 2
        self.last_s = now_s
        return self.days * DAY_S + now_s


def dcgmi(source: Source) -> Samples:
    """Rows of `dcgmi dmon -e 155,252` (power in W, used frame buffer in MiB), which have no time."""
    names: Sequence[str] = ()
    for line in source.lines():
        cells = line.split()
        if line.startswith("#"):
            names = cells[1:]
        elif cells[:1] == ["GPU"] and len(cells) == len(names) + 2:
            row = dict(zip(names, cells[2:], strict=True))
            yield from _named(source, row, DCGM, f"gpu {cells[1]}", None)
        elif cells and cells not in (["ID"], ["Id"]):
            source.leave(OTHER_WIDTH)
    if names and not set(names) & set(DCGM):
        raise InvalidInput(f"{source} has neither power nor memory; run dcgmi dmon with -e 155,252")


def _named(
    source: Source,
    row: Mapping[str, str],
    known: Mapping[str, tuple[What, float]],
    lane: str,
    at_s: float | None,
) -> Samples:
    for name, (what, factor) in known.items():
        value = source.number(row.get(name, ""))
        if value is not None:
            yield Sample(what, value * factor, None, lane, at_s)
