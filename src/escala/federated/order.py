"""In which order a client sees its samples: the same in every engine, from seed, client, round and epoch."""

from typing import Final

import numpy as np

from escala.model.columns import I64

EMPTY: Final = -1
"""Fills the last batch of a client whose samples do not divide by the batch."""


def batches(samples: int, batch: int, epochs: int, *, seed: int, client: int, round_: int) -> I64:
    """Positions of a client's samples by step: a fresh permutation an epoch. Shape (steps, batch).

    Source: Philox counters (Salmon et al. 2011, NumPy), keyed by seed and client, counted by round.
    """
    steps = -(-samples // batch)
    made = np.full((epochs, steps * batch), EMPTY, np.int64)
    for epoch in range(epochs):
        made[epoch, :samples] = generator(seed, client, round_, epoch).permutation(samples)
    return made.reshape(epochs * steps, batch)


def generator(seed: int, client: int, *when: int) -> np.random.Generator:
    """The random numbers of one client at one time; the server is client -1."""
    return np.random.default_rng([seed, client + 1, *when])
