"""Where the records of steps go besides the terminal: JSON lines always, trackers if asked for.

Each tracker is a few calls of its own library, under the metric names that people's dashboards know.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from escala.errors import InvalidInput, MissingExtra, unknown
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
    """One JSON object a line, written through at once so that a crash loses no step."""
    with (folder / LINES).open("ab") as file:

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
    """The steps that a run has told so far; a last line that a crash cut off is left out."""
    path = folder / LINES
    if not path.is_file():
        return []
    lines = path.read_bytes().splitlines()
    found = [_record(line, path, number) for number, line in enumerate(lines[:-1], 1)]
    try:
        return [*found, *([_record(lines[-1], path, len(lines))] if lines else [])]
    except InvalidInput:
        return found


def _record(line: bytes, path: Path, number: int) -> StepRecord:
    try:
        return msgspec.json.decode(line, type=StepRecord)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{path}, line {number} is no step of a run ({error}); remove the line") from None
