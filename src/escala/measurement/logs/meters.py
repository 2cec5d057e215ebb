"""Energy that a meter already summed: CodeCarbon's emissions.csv, Zeus' windows. Knows no trainer.

Source: CodeCarbon 3.3 emissions_data.py (energies in kWh); Zeus 0.16 monitor/energy.py (energies in J).
"""

from collections.abc import Mapping
from math import inf
from typing import Any, Final

import msgspec

from escala.measurement.logs.samples import Sample, Samples, What
from escala.measurement.logs.source import Source
from escala.units import KWH_J

OTHER_RUNS: Final = "rows of earlier runs"


def codecarbon(source: Source) -> Samples:
    """The last row, which has the sums of its run; earlier rows are of other runs, or of the run so far."""
    last: Mapping[str, str] | None = None
    for row in source.records():
        if last is not None and last.get("run_id") != row.get("run_id"):
            source.leave(OTHER_RUNS)
        last = row
    if last is None:
        return
    duration_s = source.number(last.get("duration", ""))
    for name, what in (("gpu_energy", What.DEVICE_ENERGY_J), ("energy_consumed", What.MACHINE_ENERGY_J)):
        energy_kwh = source.number(last.get(name, ""))
        if energy_kwh:
            yield Sample(what, energy_kwh * KWH_J, None, "", duration_s)


def zeus_csv(source: Source) -> Samples:
    """Windows of ZeusMonitor(log_file=...): seconds and joules of each GPU."""
    for row in source.records():
        duration_s = source.number(row.get("elapsed_time", ""))
        for name, cell in row.items():
            if name.startswith("gpu") and name.endswith("_energy"):
                energy_j = source.number(cell)
                if energy_j is not None and duration_s is not None:
                    lane = f"gpu {name.removeprefix('gpu').removesuffix('_energy')}"
                    yield Sample(What.DEVICE_ENERGY_J, energy_j, None, lane, duration_s)


def zeus_json(source: Source) -> Samples:
    """Measurements of Zeus as JSON lines: {"time": s, "gpu_energy": {"0": J}}."""
    for row in json_lines(source):
        duration_s, energies = real(row.get("time")), row.get("gpu_energy")
        if duration_s is None or not isinstance(energies, dict):
            source.leave("lines without time and gpu_energy")
            continue
        for device, energy in energies.items():
            energy_j = real(energy)
            if energy_j is not None:
                yield Sample(What.DEVICE_ENERGY_J, energy_j, None, f"gpu {device}", duration_s)


def real(value: object) -> float | None:
    """A number of a JSON document; None where it is none. A whole number beyond all floats is infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return inf


def json_lines(source: Source) -> Any:
    """Objects of a file with one in each line; other lines are left out."""
    for line in source.lines():
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield row
        elif line.strip():
            source.leave("lines that are no JSON object")
