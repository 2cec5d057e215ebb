"""Which tool wrote a file, by its content alone. One table; knows no numbers.

Text that is in no table is searched line by line for the first line that a trainer prints.
"""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from escala.errors import InvalidInput
from escala.measurement.logs import devices, events, meters, plain, progress, stdout, trackers
from escala.measurement.logs.samples import Samples
from escala.measurement.logs.source import Source, text_of
from escala.measurement.logs.stamped import STAMP, Stamped, stamped

MOST_LINES: Final = 1_000_000
"""Lines before the first step; a longer start-up is no log of a run."""
Reader = Callable[[Source], Samples]


@dataclass(frozen=True, slots=True)
class Format:
    """A tool, how its file is read, and whether its clock is UTC (else the local time of the machine)."""

    tool: str
    read: Reader
    is_utc: bool = False


TENSORBOARD: Final = Format("TensorBoard", events.tensorboard, is_utc=True)
MLFLOW: Final = Format("MLflow", trackers.mlflow_file, is_utc=True)
WATCH: Final = Format("escala watch", lambda source: iter(()), is_utc=True)
PROGRESS: Final = Format("progress bar", stamped(progress.progress), is_utc=True)
PLAIN: Final = Format("printed steps", stamped(plain.plain), is_utc=True)
# Keys of the object that the file is, or that its first line is; the first that is there decides.
OBJECTS: Final = {
    "log_history": Format("HF Trainer", trackers.huggingface),
    "_wandb": Format("W&B summary", trackers.wandb_summary),
    "_runtime": Format("W&B summary", trackers.wandb_summary),
}
LINES: Final = {
    "_timestamp": Format("W&B", trackers.wandb_lines, is_utc=True),
    "gpu_energy": Format("Zeus", meters.zeus_json),
    "interval_s": WATCH,
}
# Columns that a header has: whole, or how one begins before the * and what is in it after.
HEADERS: Final = (
    (("run_id", "duration", "emissions", "energy_consumed"), Format("CodeCarbon", meters.codecarbon)),
    (("start_time", "window_name", "elapsed_time"), Format("Zeus", meters.zeus_csv)),
    (("_step", "_timestamp"), Format("W&B", trackers.wandb_csv, is_utc=True)),
    (("Step", "* - "), Format("W&B chart", trackers.wandb_chart)),
    (("run_id", "metrics.*"), Format("MLflow table", trackers.mlflow_csv, is_utc=True)),
    (("epoch", "step"), Format("Lightning", trackers.lightning)),
    (("timestamp", "power.draw*"), Format("nvidia-smi", devices.query_csv)),
    (("timestamp", "memory.used*"), Format("nvidia-smi", devices.query_csv)),
)
FIRST: Final = (
    (re.compile(r"# *(?:Date +)?(?:Time +)?gpu +(?:Idx +)?"), Format("nvidia-smi dmon", devices.dmon)),
    (re.compile(r"#Entity +"), Format("DCGM", devices.dcgmi)),
    (re.compile(r"\d{12,14} \S+ \d+$"), MLFLOW),
)
PRINTED: Final = (
    (stdout.DEEPSPEED, Format("DeepSpeed", stdout.deepspeed)),
    (stdout.DEEPSPEED_RATE, Format("DeepSpeed", stdout.deepspeed)),
    (stdout.ITERATION, Format("Megatron-LM", stdout.megatron)),
    (stdout.TITAN, Format("torchtitan", stdout.torchtitan)),
)
KNOWN: Final = (
    "HF trainer_state.json, stdout of Megatron-LM, torchtitan or DeepSpeed (with wall_clock_breakdown), "
    "Lightning metrics.csv, TensorBoard events, MLflow, W&B, nvidia-smi dmon or CSV with its header, "
    "dcgmi dmon, CodeCarbon, Zeus and the folder of escala watch"
)

STEPS: Final = (
    "known are lines of Megatron-LM, torchtitan and DeepSpeed, bars of tqdm, and lines such as 'step 38', "
    "'Step 38/1000' or 'iteration 38:' whose number grows; print one at each step"
)
"""Lines with a time before them in which a step is found, and what to do where there are none."""


def recognise(source: Source) -> Format:
    """The format of a file; InvalidInput says what was looked for where it is none of them."""
    head = source.head()
    if events.length_of(head) is not None:
        return TENSORBOARD
    text = text_of(head, source)
    if STAMP.match(text):
        return _stamped(source)
    is_object = text.lstrip().startswith("{")
    found = _object(text) if is_object else _table(text, source) or _printed(Source(source.path))
    if found is None and not is_object and _has_step(Source(source.path)):
        raise InvalidInput(
            f"{source} prints steps without a time; run it as `escala watch -- COMMAND`, which adds one"
        )
    if found is None:
        raise InvalidInput(f"{source} is in no format that can be read; there are {KNOWN}")
    return found


def _object(text: str) -> Format | None:
    """One object, or one in each line."""
    first, _, rest = text.strip().partition("\n")
    try:
        keys = msgspec.json.decode(first)
    except (msgspec.DecodeError, RecursionError):
        keys = {}
    is_summary = isinstance(keys, dict) and "_wandb" in keys and not rest
    for name, kind in LINES.items():
        if name in keys and not is_summary:
            return kind
    return next((kind for name, kind in OBJECTS.items() if f'"{name}"' in text), None)


def _table(text: str, source: Source) -> Format | None:
    first = text.lstrip().partition("\n")[0].strip()
    for pattern, kind in FIRST:
        if pattern.match(first):
            return kind
    found = _headed(first)
    if found is None and ";" in first and _headed(first.replace(";", ",")) is not None:
        raise InvalidInput(
            f"{source} is separated by ';', as where numbers have decimal commas; export it with ',' and '.'"
        )
    return found


def _headed(line: str) -> Format | None:
    try:
        names = [name.strip() for name in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return None
    for wanted, kind in HEADERS:
        if all(_has(names, each) for each in wanted):
            return kind
    return None


def _has(names: list[str], wanted: str) -> bool:
    start, star, inside = wanted.partition("*")
    return any(name.startswith(start) and inside in name for name in names) if star else wanted in names


def _stamped(source: Source) -> Format:
    """The tool of lines that have a time before them, or the bars or printed steps among them."""
    has_bar = False
    for line in islice(Stamped(source.path).lines(), MOST_LINES):
        found = _tool(line)
        if found is not None:
            return Format(found.tool, stamped(found.read), is_utc=True)
        has_bar = has_bar or progress.drawn(line) is not None or progress.END.search(line) is not None
    if has_bar:
        return PROGRESS
    if plain.longest(Stamped(source.path)) is not None:
        return PLAIN
    raise InvalidInput(f"{source} has no line with a step; {STEPS}")


def _printed(source: Source) -> Format | None:
    lines = islice(source.lines(), MOST_LINES)
    return next((kind for line in lines if (kind := _tool(line)) is not None), None)


def _has_step(source: Source) -> bool:
    return any(map(plain.printed, islice(source.lines(), MOST_LINES)))


def _tool(line: str) -> Format | None:
    return next((kind for pattern, kind in PRINTED if pattern.search(line)), None)
