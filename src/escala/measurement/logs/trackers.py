"""Scalars that experiment trackers keep: HF trainer_state.json, Lightning, MLflow, W&B. Knows no statistics.

Source: transformers 5 trainer_callback.py and trainer_utils.speed_metrics; Lightning 2.6 csv_logs and
ThroughputMonitor; MLflow 3 store/tracking/file_store.py; W&B public API history and wandb-summary.json.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from escala.errors import InvalidInput
from escala.inputs import UTF8_BOM, read_bytes, reason
from escala.measurement.logs.meters import json_lines, real
from escala.measurement.logs.names import scalar
from escala.measurement.logs.samples import Sample, Samples, What
from escala.measurement.logs.source import Source, whole

MOST_JSON_BYTES: Final = 100_000_000
LIGHTNING_TIME: Final = "train/time"
MS_S: Final = 1e-3
CHART: Final = " - "
BOUNDS: Final = ("__MIN", "__MAX")


def huggingface(source: Source) -> Samples:
    """trainer_state.json: the mean step over the whole run, and samples a second.

    With include_num_input_tokens_seen each entry has the seconds and the tokens since the start: a clock, and
    the tokens a second from entry to entry.
    """
    begin_s = begin_tokens = 0.0
    for entry, step, runtime_s in _entries(source):
        yield from _scalars(entry, step, None)
        if "train_samples_per_second" in entry:  # the end of the run
            yield Sample(What.MEAN_STEP_S, runtime_s / step, step)
            continue
        yield Sample(What.CLOCK_S, runtime_s, step)
        tokens = real(entry.get("num_input_tokens_seen"))
        if tokens is not None and runtime_s > begin_s:
            yield Sample(What.TOKENS_PER_S, (tokens - begin_tokens) / (runtime_s - begin_s), step)
            begin_s, begin_tokens = runtime_s, tokens


def _entries(source: Source) -> Iterator[tuple[dict[str, Any], int, float]]:
    """Entries of the history that have a step and the seconds since the start."""
    history = _object(source).get("log_history")
    for entry in history if isinstance(history, list) else ():
        step = _whole(entry, "step")
        runtime_s = real(entry.get("train_runtime")) if step else None
        if step and runtime_s is not None:
            yield entry, step, runtime_s


def _whole(given: object, name: str) -> int | None:
    """A step number of an object of JSON; None where it has none that can be one."""
    value = real(given.get(name)) if isinstance(given, dict) else None
    return int(value) if value is not None and 0 <= value < 2**53 else None


def _object(source: Source) -> Mapping[str, Any]:
    content = read_bytes(source.path, MOST_JSON_BYTES, "name a smaller file")
    try:
        found = msgspec.json.decode(content.removeprefix(UTF8_BOM))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"{source} is cut short or no JSON ({reason(error)}); copy it again") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{source} holds no object with keys; check the file")
    return found


def _scalars(given: Mapping[str, Any], step: int | None, at_s: float | None) -> Samples:
    for name, value in given.items():
        number = real(value)
        if number is not None:
            yield from scalar(str(name), number, step, at_s)


def lightning(source: Source) -> Samples:
    """metrics.csv of CSVLogger: what ThroughputMonitor and DeviceStatsMonitor log; clock: train/time."""
    for row in source.records():
        step = whole(row.get("step", ""))
        time_s = source.number(row.get(LIGHTNING_TIME, ""))
        if time_s is not None and step is not None:
            yield Sample(What.CLOCK_S, time_s, step)
        yield from _cells(source, row, step, None)


def _cells(source: Source, row: Mapping[str, str], step: int | None, at_s: float | None) -> Samples:
    for name, cell in row.items():
        if any(True for _ in scalar(name, 1.0, None, None)):
            value = source.number(cell)
            if value is not None:
                yield from scalar(name, value, step, at_s)


def mlflow_file(source: Source) -> Samples:
    """A file below mlruns/EXPERIMENT/RUN/metrics, named by its path: lines of milliseconds, value, step."""
    parts = source.path.absolute().parts
    inside = len(parts) - 1 - parts[::-1].index("metrics") if "metrics" in parts else len(parts) - 2
    name = "/".join(parts[inside + 1 :])
    for line in source.lines():
        cells = line.split()
        if len(cells) != 3:
            source.leave("lines that are not time, value and step")
            continue
        moment, value, step = source.number(cells[0]), source.number(cells[1]), whole(cells[2])
        if moment is not None and value is not None and step is not None:
            at_s = moment * MS_S
            yield Sample(What.CLOCK_S, at_s, step, "", at_s)
            yield from scalar(name, value, step, at_s)


def mlflow_csv(source: Source) -> Samples:
    """search_runs() or `mlflow experiments csv`: one row with the last value of each metric."""
    for number, row in enumerate(source.records()):
        if number:
            raise InvalidInput(f"{source} holds several runs; keep the row of one")
        metrics = {name.removeprefix("metrics."): cell for name, cell in row.items() if "metrics." in name}
        yield from _cells(source, metrics, None, None)


def wandb_csv(source: Source) -> Samples:
    """run.history().to_csv(): one row a step with _step and _timestamp."""
    for row in source.records():
        step, at_s = whole(row.get("_step", "")), source.number(row.get("_timestamp", ""))
        yield from _clock(step, at_s)
        yield from _cells(source, row, step, at_s)


def wandb_chart(source: Source) -> Samples:
    """The CSV of a chart of W&B's page: Step, and columns 'run - metric' with their __MIN and __MAX."""
    for row in source.records():
        columns = [name.partition(CHART) for name in row if CHART in name and not name.endswith(BOUNDS)]
        if len({run for run, _, _ in columns}) > 1:
            raise InvalidInput(f"{source} holds several runs; export the chart of one")
        metrics = {metric: row[f"{run}{CHART}{metric}"] for run, _, metric in columns}
        yield from _cells(source, metrics, whole(row.get("Step", "")), None)


def wandb_lines(source: Source) -> Samples:
    """run.scan_history() as JSON lines, with _step and _timestamp."""
    for row in json_lines(source):
        step, at_s = _whole(row, "_step"), real(row.get("_timestamp"))
        yield from _clock(step, at_s)
        yield from _scalars(row, step, at_s)


def _clock(step: int | None, at_s: float | None) -> Iterator[Sample]:
    if step is not None and at_s is not None:
        yield Sample(What.CLOCK_S, at_s, step, "", at_s)


def wandb_summary(source: Source) -> Samples:
    """wandb-summary.json: the last value of each scalar, and the mean step over the whole run."""
    given = _object(source)
    runtime_s, step = real(given.get("_runtime")), _whole(given, "_step")
    if runtime_s is not None and step:
        yield Sample(What.MEAN_STEP_S, runtime_s / step, step)
    yield from _scalars(given, step, None)
