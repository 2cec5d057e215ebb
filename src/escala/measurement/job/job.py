"""A job: what a person's function returned, and how one step of it runs. Times nothing.

One step draws a batch, runs forward, backward and the optimizer; each phase is marked for a trace.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from escala.errors import InvalidInput
from escala.measurement.job.batches import Feed, on_device, split
from escala.measurement.job.fault import user_code
from escala.measurement.job.target import CONTRACT

PARTS: Final = ("model", "optimizer", "batches", "loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A job by its parts: `loss(model, batch)` is a scalar tensor; a step runs `micro_batches` of a batch."""

    model: nn.Module
    optimizer: Any
    batches: Iterable[Any]
    loss: Callable[[Any, Any], Any]
    micro_batches: int = 1
    scaler: Any = None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        first = next(self.model.parameters(), None)
        return torch.device("cpu") if first is None else first.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocast:
    """A loss computed under autocast."""

    loss: Callable[[Any, Any], Any]
    kind: str
    dtype: torch.dtype

    def __call__(self, model: Any, batch: Any) -> Any:
        """The loss of a batch."""
        with torch.autocast(self.kind, self.dtype):
            return self.loss(model, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A job of which only a function is known that runs one whole step."""

    step: Callable[[], Any]


Job = Training | Whole


def job_of(returned: Any, target: str) -> Job:
    """The job that a function returned: four parts as a tuple, mapping or attributes, or a step."""
    if isinstance(returned, nn.Module):
        raise InvalidInput(f"{target} returned a model alone; {CONTRACT}")
    parts = _parts(returned)
    if parts is not None:
        return _training(parts, target)
    if callable(returned):
        return Whole(step=returned)
    raise InvalidInput(f"{target} returned {_shape(returned)}; {CONTRACT}")


def _parts(returned: Any) -> tuple[Any, ...] | None:
    if isinstance(returned, tuple | list):
        return tuple(returned) if len(returned) == len(PARTS) else None
    if isinstance(returned, Mapping):
        return tuple(returned[name] for name in PARTS) if set(PARTS) <= set(returned) else None
    if all(hasattr(returned, name) for name in PARTS):
        return tuple(getattr(returned, name) for name in PARTS)
    return None


def _training(parts: tuple[Any, ...], target: str) -> Training:
    model, optimizer, batches, loss = parts
    for name, good, wanted in (
        ("model", isinstance(model, nn.Module), "a torch.nn.Module"),
        ("optimizer", hasattr(optimizer, "step") and hasattr(optimizer, "zero_grad"), "a torch optimizer"),
        ("batches", hasattr(batches, "__iter__"), "an iterable such as a DataLoader or a list"),
        ("loss", callable(loss), "a function loss(model, batch)"),
    ):
        if not good:
            given = type(parts[PARTS.index(name)]).__name__
            raise InvalidInput(f"{target} returned {given} as {name}; {name} has to be {wanted}")
    return Training(model=model, optimizer=optimizer, batches=batches, loss=loss)


def _shape(returned: Any) -> str:
    if isinstance(returned, tuple | list):
        return f"{len(returned)} values"
    return "nothing" if returned is None else type(returned).__name__


@dataclass(slots=True)
class Runner:
    """Runs steps of a job, one after the other, and tells what they raise as that of `name`."""

    job: Job
    name: str
    feed: Feed | None = field(default=None)

    def __post_init__(self) -> None:
        """A job by its parts has batches to draw."""
        if isinstance(self.job, Training):
            self.feed = Feed(self.job.batches)

    def step(self) -> None:
        """One step."""
        with user_code(self.name):
            if isinstance(self.job, Whole):
                self.job.step()
            else:
                train(self.job, self.batch())

    def batch(self) -> Any:
        """The next batch, on the device of the model."""
        assert self.feed is not None
        assert isinstance(self.job, Training)
        with record_function("data"):
            return on_device(self.feed.next(), self.job.device)

    def close(self) -> None:
        """End what draws batches."""
        if self.feed is not None:
            self.feed.close()


@contextmanager
def running(job: Job, name: str) -> Iterator[Runner]:
    """A runner of the job, closed at the end."""
    runner = Runner(job, name)
    try:
        yield runner
    finally:
        runner.close()


def train(job: Training, batch: Any) -> torch.Tensor:
    """Forward and backward of each micro-batch and one optimizer step; the mean loss."""
    pieces = split(batch, job.micro_batches)
    losses = []
    for piece in pieces:
        with _unsynchronised(job.model, piece is not pieces[-1]):
            with record_function("forward"):
                loss = _checked(job.loss(job.model, piece)) / len(pieces)
            with record_function("backward"):
                (loss if job.scaler is None else job.scaler.scale(loss)).backward()
        losses.append(loss.detach())
    with record_function("optimizer"):
        _update(job)
    return torch.stack(losses).sum()


def _update(job: Training) -> None:
    if job.scaler is None:
        job.optimizer.step()
    else:
        job.scaler.step(job.optimizer)
        job.scaler.update()
    job.optimizer.zero_grad()


def _checked(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        given = f"a tensor of {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise InvalidInput(
            f"loss(model, batch) returned {given}; it has to be one number that depends on the model"
        )
    return loss


def _unsynchronised(model: nn.Module, is_early: bool) -> AbstractContextManager[Any]:
    """All but the last micro-batch leave gradients unreduced."""
    inner = getattr(model, "_orig_mod", model)  # of torch.compile
    return inner.no_sync() if is_early and isinstance(inner, DistributedDataParallel) else nullcontext()
