"""Samples that are made, not read, for benchmarks: each follows from its number. Stores nothing."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.training.data.order import U64, mixed, mixed_number
from escala.training.data.samples import Samples

EPOCH: Final = 2**40
"""Samples of an epoch: more than any run consumes, since none repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticTokens:
    """Tokens that any vocabulary has equally often; nothing can be learned from them."""

    sequence_tokens: int
    vocabulary: int
    seed: int = 0

    def __len__(self) -> int:
        """Samples of an epoch."""
        return EPOCH

    def batch(self, first: int, count: int) -> Samples:
        """Samples first to first + count: hash of (seed, sample, place) modulo the vocabulary."""
        values = _hashes(self.seed, first, count, self.sequence_tokens + 1)
        tokens = (values % np.uint64(self.vocabulary)).astype(np.int64)
        return Samples(inputs=tokens[:, :-1].copy(), targets=tokens[:, 1:].copy())


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticImages:
    """Pixels equally distributed with mean 0 and deviation 1, and labels without meaning."""

    pixels: int
    classes: int
    channels: int = 3
    seed: int = 0

    def __len__(self) -> int:
        """Samples of an epoch."""
        return EPOCH

    def batch(self, first: int, count: int) -> Samples:
        """Samples first to first + count: drawn by a generator of their seed and number."""
        shape = (self.channels, self.pixels, self.pixels)
        inputs = np.empty((count, *shape), np.float32)
        targets = np.empty(count, np.int64)
        for place in range(count):
            chance = np.random.Generator(np.random.SFC64(mixed_number((self.seed, first + place))))
            targets[place] = chance.integers(self.classes)
            chance.random(dtype=np.float32, out=inputs[place])
        inputs -= np.float32(0.5)
        inputs *= np.float32(12**0.5)
        return Samples(inputs=inputs, targets=targets)


def _hashes(seed: int, first: int, count: int, places: int) -> U64:
    """Numbers of 64 bits for each place of each sample, (count, places)."""
    samples = np.arange(first, first + count, dtype=np.uint64)
    keys = mixed(samples ^ np.uint64(mixed_number((seed,))))
    return mixed(keys[:, None] + np.arange(places, dtype=np.uint64)[None, :] * np.uint64(0xD1342543DE82EF95))
