"""Files of one run read, merged and summed up as a RunRecord. Decides what counts, knows no format."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import numpy as np

from escala import __version__
from escala.errors import InvalidInput
from escala.measurement.logs.energy import metered, power, unused_power
from escala.measurement.logs.gather import gather
from escala.measurement.logs.samples import Gathered, What
from escala.measurement.logs.steptimes import CLOCK, MEAN, Told, rank_times, step_times, told
from escala.measurement.runrecord import RUN_SCHEMA, Figure, LogFile, Peak, RunRecord

COUNTERS: Final = {
    "allocated": What.ALLOCATED_BYTES,
    "reserved": What.RESERVED_BYTES,
    "device": What.DEVICE_BYTES,
}
SAME: Final = {
    What.DEVICES: "devices",
    What.SEQUENCE_TOKENS: "tokens of a sequence",
    What.GLOBAL_BATCH: "samples of a global batch",
}
FAR: Final = 253402300800.0  # year 10000


def record(names: Sequence[str], warmup: int | None = None) -> RunRecord:
    """The files, and the files of the folders, of one run as a RunRecord; `warmup` samples are dropped."""
    files, notes = gather(names)
    _refuse_different(files)
    run = told(files, warmup)
    step = None if run is None else step_times(run)
    batch, tokens, devices = (
        _fact(files, what) for what in (What.GLOBAL_BATCH, What.SEQUENCE_TOKENS, What.DEVICES)
    )
    rates = _rates(files, run, step.median_s if step else None, batch, tokens, devices)
    began, ended = _when(run)
    found = RunRecord(
        schema=RUN_SCHEMA,
        escala=__version__,
        sources=tuple(_source(file) for file in files),
        began=began,
        ended=ended,
        last_step=_last_step(run),
        step=step,
        ranks=() if run is None else rank_times(run),
        **rates,
        memory=_peaks(files),
        power=power(files, run),
        metered=metered(files),
        devices=devices,
        global_batch=batch,
        sequence_tokens=tokens,
        unsaid=(),
        usage=tuple(each for file in files for each in file.usage),
        notes=(*notes, *_notes(run), *unused_power(files)),
    )
    return replace(found, unsaid=_unsaid(found))


def _unsaid(given: RunRecord) -> tuple[str, ...]:
    """What no file says."""
    rates = (
        *(given.tokens_per_s, given.tokens_per_s_per_device, given.samples_per_s),
        *(given.samples_per_s_per_device, given.flop_per_s_per_device, given.mfu),
    )
    said = {
        "the time of a step": given.step,
        "a rate": any(rates),
        "memory": given.memory,
        "power or energy": given.power or given.metered,
        "the number of devices": given.devices,
        "the global batch": given.global_batch,
        "the sequence length": given.sequence_tokens,
    }
    return tuple(name for name, value in said.items() if not value)


def _refuse_different(files: Sequence[Gathered]) -> None:
    for what, words in SAME.items():
        given = [(value, file.path) for file in files if (value := file.last(what)) is not None]
        other = next((each for each in given if each[0] != given[0][0]), None)
        if other is not None:
            raise InvalidInput(
                f"{given[0][1]} and {other[1]} are of different runs ({given[0][0]:g} and {other[0]:g} "
                f"{words}); record them apart"
            )


def _fact(files: Sequence[Gathered], what: What) -> int | None:
    value = next((each for file in files if (each := file.last(what)) is not None), None)
    return None if value is None else round(value)


def _rates(
    files: Sequence[Gathered],
    run: Told | None,
    step_s: float | None,
    batch: int | None,
    tokens: int | None,
    devices: int | None,
) -> dict[str, Figure | None]:
    """Rates as logged; one of the whole run that no log has follows from batch and step, or from devices."""
    names = (
        *(What.TOKENS_PER_S, What.TOKENS_PER_S_PER_DEVICE, What.SAMPLES_PER_S, What.SAMPLES_PER_S_PER_DEVICE),
        *(What.FLOP_PER_S_PER_DEVICE, What.MFU),
    )
    found = {str(what): _logged(files, run, what) for what in names}
    samples_per_s = batch / step_s if batch and step_s else None
    tokens_per_s = samples_per_s * tokens if samples_per_s and tokens else None
    per_device = found["tokens_per_s_per_device"]
    if tokens_per_s is None and per_device is not None and devices:
        tokens_per_s = per_device.value * devices
    for name, value in (("samples_per_s", samples_per_s), ("tokens_per_s", tokens_per_s)):
        if found[name] is None and value is not None:
            found[name] = Figure(value=value, samples=0, origin="derived")
    return found


def _logged(files: Sequence[Gathered], run: Told | None, what: What) -> Figure | None:
    """The median after warm-up in the first file that logs a rate; of several ranks the lowest."""
    for file in files:
        lanes = [series.values for series in file.of(what).values()]
        if lanes:
            skip = 0 if run is None or run.how == MEAN else run.warmup + (run.how == CLOCK)
            kept = [values[min(skip, len(values) - 1) :] for values in lanes]
            return min(
                (Figure(value=float(np.median(each)), samples=len(each), origin="logged") for each in kept),
                key=lambda each: each.value,
            )
    return None


def _peaks(files: Sequence[Gathered]) -> tuple[Peak, ...]:
    """The highest of each counter over files, ranks and devices."""
    found = []
    for counter, what in COUNTERS.items():
        every = [
            Peak(counter=counter, peak_bytes=float(series.values.max()), lane=lane)
            for file in files
            for lane, series in file.of(what).items()
        ]
        found += [max(every, key=lambda each: each.peak_bytes)] if every else []
    return tuple(found)


def _source(file: Gathered) -> LogFile:
    numbers = file.kept + sum(usage.samples for usage in file.usage)
    return LogFile(path=file.path, tool=file.tool, numbers=numbers, left_out=dict(file.left_out))


def _when(run: Told | None) -> tuple[str | None, str | None]:
    """The clock of the first and the last step, with Z where it is UTC."""
    clock = np.empty(0) if run is None else run.slowest.clock_s
    clock = clock[np.isfinite(clock) & (clock < FAR)]
    if run is None or not len(clock):
        return None, None
    ends = (datetime.fromtimestamp(float(each), UTC).replace(tzinfo=None) for each in (clock[0], clock[-1]))
    first, last = (f"{each.isoformat(timespec='seconds')}{'Z' if run.is_utc else ''}" for each in ends)
    return first, last


def _last_step(run: Told | None) -> int | None:
    last = -1.0 if run is None else float(run.slowest.steps.max())
    return None if last < 0 else int(last)


def _notes(run: Told | None) -> tuple[str, ...]:
    if run is None:
        return ()
    back = int(np.sum(np.diff(run.slowest.steps) < 0))
    again = 0 if run.how == CLOCK else int(np.sum(np.diff(run.slowest.steps[run.slowest.steps >= 0]) == 0))
    why = "the run was restarted, or counts each epoch anew"
    restarts = [f"the steps go back {back} times: {why}"] if back else []
    ranks = [f"{again} lines repeat a step: ranks whose lines do not name them are one"] if again else []
    return (*run.notes, *restarts, *ranks)
