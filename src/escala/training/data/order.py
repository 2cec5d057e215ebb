"""Which item of a set is sample i of a run: a seeded permutation for each epoch. Stores no permutation.

A number below rows · columns is a row and a column; each round adds to one of them a hash of the other, seed
and epoch, which can be undone, so it permutes (a Feistel network on numbers of any size). What falls outside
of the set, less than a row, is mapped again until it falls inside (cycle walking): Black and Rogaway 2002,
"Ciphers with arbitrary finite domains". Any place of any epoch costs the same few operations, and no rank
holds an array as long as the set, as `Generator.permutation` would: 8 bytes an item, made anew each epoch.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.training.data.samples import I64

U64 = NDArray[np.uint64]

# Four rounds of a good hash cannot be told from chance (Luby and Rackoff 1988); two more, since the rows and
# columns of small sets are few.
ROUNDS: Final = 6
WORD: Final = 2**64 - 1
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Items of a set in the order of a run; without seed as they stand."""

    items: int
    seed: int | None

    def __post_init__(self) -> None:
        if self.items < 1:
            raise InvalidInput("a set without samples has no order; check what was read")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise InvalidInput(f"seed {self.seed} is not from 0 to 2^63 - 1; choose one")

    def at(self, first: int, count: int) -> tuple[I64, I64]:
        """Epochs and items of samples first to first + count of the run."""
        samples = np.arange(first, first + count, dtype=np.int64)
        epochs, places = np.divmod(samples, self.items)
        if self.seed is None:
            return epochs, places
        items = np.empty_like(places)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            items[chosen] = permuted(places[chosen], self.items, self.seed, int(epoch))
        return epochs, items


def permuted(places: I64, items: int, seed: int, epoch: int) -> I64:
    """Items at some places of an epoch: the Feistel network, walked until inside the set."""
    rows = isqrt(items - 1) + 1
    columns = -(-items // rows)
    keys = [mixed_number((seed, epoch, each)) for each in range(ROUNDS)]
    found = _network(places.astype(np.uint64), rows, columns, keys)
    while (outside := found >= items).any():
        found[outside] = _network(found[outside], rows, columns, keys)
    return found.astype(np.int64)


def _network(values: U64, rows: int, columns: int, keys: list[int]) -> U64:
    row, column = np.divmod(values, np.uint64(columns))
    for even, odd in zip(keys[::2], keys[1::2], strict=True):
        row = (row + mixed(column ^ np.uint64(even)) % np.uint64(rows)) % np.uint64(rows)
        column = (column + mixed(row ^ np.uint64(odd)) % np.uint64(columns)) % np.uint64(columns)
    return row * np.uint64(columns) + column


def mixed(values: U64) -> U64:
    """Every bit of a number spread over all 64: the finalizer of SplitMix64 (Steele et al. 2014)."""
    values = values + np.uint64(STEP)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(SECOND)
    return values ^ (values >> np.uint64(31))


def mixed_number(numbers: tuple[int, ...]) -> int:
    """One number out of several by the same hash, such that each of them and their order count."""
    state = 0
    for each in numbers:
        state = ((state ^ each) + STEP) & WORD
        state = ((state ^ (state >> 30)) * FIRST) & WORD
        state = ((state ^ (state >> 27)) * SECOND) & WORD
        state ^= state >> 31
    return state
