"""Batches: what they count, moved to a device, split in pieces, drawn again and again. Knows no model."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch

from escala.errors import InvalidInput

TOKENS: Final = "input_ids"


@dataclass(slots=True)
class Feed:
    """Batches without end: begun again when they are over."""

    batches: Iterable[Any]
    _source: Iterator[Any] | None = field(default=None, init=False)

    def next(self) -> Any:
        """The next batch."""
        for _ in range(2):
            if self._source is None:
                self._source = iter(self.batches)
            try:
                return next(self._source)
            except StopIteration:
                self._refuse_ended()
                self._source = None
        raise InvalidInput("the batches are empty; return an iterable with at least one batch")

    def close(self) -> None:
        """Let go of the iterator, and with it of workers."""
        self._source = None

    def _refuse_ended(self) -> None:
        if self._source is self.batches:
            raise InvalidInput(
                "the batches ended; return a DataLoader or a list, which can be begun again, not a generator"
            )


def mapped(batch: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """The batch with every tensor in it replaced: tensors, mappings, lists and tuples, also nested."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        made: Any = copy.copy(batch)
        for key, value in batch.items():
            made[key] = mapped(value, function)
        return made
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(mapped(each, function) for each in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(mapped(each, function) for each in batch)
    return batch


def tensors(batch: Any) -> list[torch.Tensor]:
    """Every tensor of a batch, in order."""
    found: list[torch.Tensor] = []
    mapped(batch, found.append)
    return found


def samples(batch: Any) -> int | None:
    """The first dimension that all tensors of a batch share; None where they share none."""
    lengths = {len(each) if each.dim() else 0 for each in tensors(batch)}
    return lengths.pop() if len(lengths) == 1 else None


def tokens(batch: Any) -> int | None:
    """Tokens of a batch that has input_ids."""
    ids = batch[TOKENS] if isinstance(batch, Mapping) and TOKENS in batch else None
    return int(ids.numel()) if isinstance(ids, torch.Tensor) else None


def on_device(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on a device."""
    return mapped(batch, lambda each: each.to(device, non_blocking=True))


def split(batch: Any, pieces: int) -> list[Any]:
    """The batch in equal pieces along its first dimension."""
    if pieces == 1:
        return [batch]
    count = samples(batch)
    if count is None:
        lengths = sorted({tuple(each.shape) for each in tensors(batch)})
        raise InvalidInput(f"the tensors of a batch share no first dimension ({lengths})")
    if count % pieces:
        raise InvalidInput(f"{count} samples of a batch do not make {pieces} equal micro-batches")
    size = count // pieces
    return [mapped(batch, partial(_rows, begin=at, end=at + size)) for at in range(0, count, size)]


def _rows(tensor: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    return tensor[begin:end]
