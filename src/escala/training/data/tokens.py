"""Tokens of a prepared folder, memory-mapped: any stretch of them, and where documents end in it."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.inputs import reason
from escala.training.data.index import (
    AGAIN,
    ENDS_STORED,
    STORED,
    TRAIN,
    TokensIndex,
    check_sizes,
    read_index,
)
from escala.training.data.samples import I64

OTHER_SHARE: Final = "prepare it with another --validation"


class Tokens:
    """The tokens of one part of a prepared set, as one long row over all shards."""

    def __init__(self, folder: Path, index: TokensIndex, part: str) -> None:
        self.index, self.part = index, part
        self._folder = folder
        self._shards = index.of(part)
        self._starts = np.cumsum([0, *(each.tokens for each in self._shards)], dtype=np.int64)
        self._mapped: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        """Tokens, the ends of documents included."""
        return int(self._starts[-1])

    def stretch(self, first: int, count: int) -> I64:
        """Tokens first to first + count."""
        found = np.empty(count, np.int64)
        for shard, start, stop in self._pieces(first, count):
            begin = int(self._starts[shard])
            tokens = self._map(f"{self._shards[shard].name}.bin", STORED[self.index.encoding.dtype])
            found[start - first : stop - first] = tokens[start - begin : stop - begin]
        if count and found.max() >= self.index.encoding.vocabulary:
            raise InvalidInput(
                f"{self._folder}: {self.part} holds token {found.max():,} near {first:,}, which is none of "
                f"{self.index.encoding.vocabulary:,}; {AGAIN}"
            )
        return found

    def ends(self, first: int, count: int) -> I64:
        """Tokens in first to first + count that are the first ones behind the end of a document."""
        found: list[I64] = []
        for shard, start, stop in self._pieces(first, count):
            begin = int(self._starts[shard])
            ends = self._map(f"{self._shards[shard].name}.ends", ENDS_STORED)
            # the type of the map: another one would make NumPy convert all of it
            low, high = np.searchsorted(ends, np.array([start - begin, stop - begin], ENDS_STORED), "right")
            found.append(ends[low:high].astype(np.int64) + begin)
        ends_inside = np.concatenate([*found, np.empty(0, np.int64)])
        return ends_inside[ends_inside < first + count]

    def require_vocabulary(self, vocabulary: int) -> None:
        """Refuse tokens that a network of so many does not know."""
        if self.index.encoding.vocabulary > vocabulary:
            raise InvalidInput(
                f"{self._folder} has {self.index.encoding.vocabulary:,} different tokens, the network "
                f"{vocabulary:,}; prepare the text with the network's own tokenizer"
            )

    def _pieces(self, first: int, count: int) -> list[tuple[int, int, int]]:
        """The stretch cut by shards: number of the shard, first token and the one behind the last."""
        assert 0 <= first <= first + count <= len(self)
        low = int(np.searchsorted(self._starts, first, "right")) - 1
        pieces = []
        while first < (stop := first + count):
            here = min(stop, int(self._starts[low + 1]))
            pieces.append((low, first, here))
            first, count, low = here, stop - here, low + 1
        return pieces

    def _map(self, name: str, dtype: str) -> NDArray[Any]:
        if name not in self._mapped:
            file = self._folder / name
            try:
                self._mapped[name] = np.memmap(file, dtype, "r")
            except (OSError, ValueError) as error:
                raise InvalidInput(f"{file} cannot be read ({reason(error)}); {AGAIN}") from None
        return self._mapped[name]


def open_tokens(folder: Path, part: str = TRAIN) -> Tokens:
    """One part of a finished folder, every file of which is there in full length."""
    index = read_index(folder)
    if index.reached is not None:
        raise InvalidInput(f"{folder} is not finished; give `escala data prepare` the same sources once more")
    if not index.of(part):
        there = " and ".join(sorted({each.part for each in index.shards}))
        raise InvalidInput(f"{folder} has documents for {there}, none for {part}; {OTHER_SHARE}")
    check_sizes(folder, index)
    return Tokens(folder, index, part)
