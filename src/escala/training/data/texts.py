"""Samples of packed text: sequences that fill up with documents, and which tokens belong together."""

from dataclasses import dataclass

import numpy as np

from escala.errors import InvalidInput
from escala.training.data.order import Order
from escala.training.data.samples import I64, IGNORED, Samples
from escala.training.data.tokens import Tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Texts:
    """Sequences of a part of a prepared set, in the order of a seed (None: as they stand).

    Item i is made of tokens i · sequence to (i + 1) · sequence inclusive: each token but the first is
    predicted once an epoch, and less than a sequence is left over at the end. Where `is_masked`, no token is
    predicted from another document, and positions count from the first token of the document that is in the
    sequence; else the documents of a sequence are one text.
    """

    tokens: Tokens
    sequence_tokens: int
    seed: int | None
    is_masked: bool = True

    def __post_init__(self) -> None:
        if self.sequence_tokens < 1:
            raise InvalidInput(f"a sequence of {self.sequence_tokens} tokens is none; choose 1 or more")
        if len(self) < 1:
            raise InvalidInput(
                f"the part {self.tokens.part} has {len(self.tokens):,} tokens, of which one sample needs "
                f"{self.sequence_tokens + 1:,}; choose shorter sequences, or prepare more text"
            )

    def __len__(self) -> int:
        """Samples of an epoch: (tokens - 1) / sequence, rounded down."""
        return (len(self.tokens) - 1) // self.sequence_tokens

    def batch(self, first: int, count: int) -> Samples:
        """Samples first to first + count of the run."""
        _, items = Order(items=len(self), seed=self.seed).at(first, count)
        begins = (items * self.sequence_tokens).tolist()
        length = self.sequence_tokens + 1
        rows = np.stack([self.tokens.stretch(begin, length) for begin in begins])
        inputs, targets = rows[:, :-1].copy(), rows[:, 1:].copy()
        if not self.is_masked:
            return Samples(inputs=inputs, targets=targets)
        is_start = np.zeros(rows.shape, np.bool_)
        for row, begin in enumerate(begins):
            is_start[row, self.tokens.ends(begin, length) - begin] = True
        targets[is_start[:, 1:]] = IGNORED
        return Samples(
            inputs=inputs,
            targets=targets,
            documents=np.cumsum(is_start[:, :-1], axis=1, dtype=np.int32),
            positions=_positions(is_start[:, :-1]),
        )


def _positions(is_start: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> I64:
    """The place of each token behind the last start in its row: place - place of the start."""
    places = np.arange(is_start.shape[1], dtype=np.int64)
    return places - np.maximum.accumulate(np.where(is_start, places, 0), axis=1)
