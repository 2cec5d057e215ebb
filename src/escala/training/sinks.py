"""Where the records of steps go besides the terminal: JSON lines always, trackers if asked for.

Each tracker is a few calls of its own library, under the metric names that people's dashboards know.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from escala.errors import MissingExtra, unknown
from escala.training.steprecord import StepRecord

Sink = Callable[[StepRecord], None]
LINES: Final = "steps.jsonl"
NAMES: Final = {
    "loss": "train/loss",
    "held_out_loss": "eval/loss",
    "learning_rate": "train/learning_rate",
    "gradient_norm": "train/grad_norm",
    "noise_batch": "train/noise_scale",
    "tokens_per_s": "throughput/tokens_per_sec",
    "mfu": "throughput/mfu",
    "step_s": "time/step_sec",
    "wait_s": "time/data_sec",
    "peak_bytes": "memory/peak_bytes",
}
"""Fields of a record, and what trackers call them."""
LIBRARIES: Final = {
    "tensorboard": ("tensorboard", "torch.utils.tensorboard"),
    "mlflow": ("mlflow", "mlflow"),
    "wandb": ("wandb", "wandb"),
    "trackio": ("trackio", "trackio"),
}
"""Trackers: what installs one, and what is imported."""


def checked_sinks(given: str | None) -> tuple[str, ...]:
    """The trackers that a comma-separated list names."""
    names = tuple(each.strip() for each in (given or "").split(",") if each.strip())
    for name in names:
        if name not in LIBRARIES:
            raise unknown("sink", name, tuple(LIBRARIES), f"there are {', '.join(LIBRARIES)}")
    return names


@contextmanager
def sinks(folder: Path, names: Sequence[str], facts: dict[str, Any]) -> Iterator[Sink]:
    """Takes records while this lasts; `facts` describe the run where a tracker keeps such things."""
    with ExitStack() as stack:
        every = [stack.enter_context(_lines(folder))]
        every += [stack.enter_context(_OPENERS[name](folder, facts)) for name in names]

        def told(record: StepRecord) -> None:
            for each in every:
                each(record)

        yield told


@contextmanager
def _lines(folder: Path) -> Iterator[Sink]:
    """One JSON object a line, written through at once so that a crash loses no step.

    A last line that a crash cut off goes, so that the next one does not become a part of it.
    """
    path = folder / LINES
    lines = _told_lines(folder)
    if lines and not lines[-1].endswith(b"\n"):
        os.truncate(path, path.stat().st_size - len(lines[-1]))
    with path.open("ab") as file:

        def told(record: StepRecord) -> None:
            file.write(msgspec.json.encode(record) + b"\n")
            file.flush()

        yield told


def metrics(record: StepRecord) -> dict[str, float]:
    """The numbers of a record by their names in trackers; what is unknown is left out."""
    found = {name: getattr(record, field) for field, name in NAMES.items()}
    return {name: float(value) for name, value in found.items() if value is not None}


def _library(name: str) -> Any:
    package, module = LIBRARIES[name]
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(f"--sink {name} needs {package}: pip install {package}") from None


@contextmanager
def _tensorboard(folder: Path, facts: dict[str, Any]) -> Iterator[Sink]:
    writer = _library("tensorboard").SummaryWriter(str(folder / "tensorboard"))
    writer.add_text("run", "\n\n".join(f"{name}: {value}" for name, value in facts.items()))

    def told(record: StepRecord) -> None:
        for name, value in metrics(record).items():
            writer.add_scalar(name, value, record.step)

    try:
        yield told
    finally:
        writer.close()


@contextmanager
def _mlflow(folder: Path, facts: dict[str, Any]) -> Iterator[Sink]:
    library = _library("mlflow")
    with library.start_run(run_name=folder.name):
        library.log_params(facts)
        yield lambda record: library.log_metrics(metrics(record), step=record.step)


@contextmanager
def _run(library: Any, folder: Path, facts: dict[str, Any]) -> Iterator[Sink]:
    """W&B and trackio, which has the same calls."""
    library.init(project="escala", name=folder.name, config=facts)
    try:
        yield lambda record: library.log(metrics(record), step=record.step)
    finally:
        library.finish()


def _wandb(folder: Path, facts: dict[str, Any]) -> Any:
    return _run(_library("wandb"), folder, facts)


def _trackio(folder: Path, facts: dict[str, Any]) -> Any:
    return _run(_library("trackio"), folder, facts)


_OPENERS: Final[dict[str, Callable[[Path, dict[str, Any]], Any]]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
    "trackio": _trackio,
}


def read_lines(folder: Path) -> list[StepRecord]:
    """The steps that a run has told so far; lines that are no step are left out."""
    return [record for record in _records(_told_lines(folder)) if record is not None]


def damage(folder: Path) -> tuple[str, ...]:
    """What is wrong with the lines of a run, in words; a last one that a crash cut off is nothing wrong."""
    lines = _told_lines(folder)
    whole = lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]
    found = [number for number, record in enumerate(_records(whole), 1) if record is None]
    if not found:
        return ()
    more = f" and {len(found) - 1:,} more are" if found[1:] else " is"
    return (f"{folder / LINES}: line {found[0]:,}{more} no step of a run, so pages and reports leave it out",)


def _told_lines(folder: Path) -> list[bytes]:
    path = folder / LINES
    return path.read_bytes().splitlines(keepends=True) if path.is_file() else []


def _records(lines: Sequence[bytes]) -> Iterator[StepRecord | None]:
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=StepRecord)
        except msgspec.MsgspecError:
            yield None
