"""In which order a client sees its samples: the same in every engine, from seed, client, round and epoch."""

from typing import Final

import numpy as np

from escala.model.columns import I64

SERVER: Final = -1
"""The number that stands for the server where random numbers are asked for."""
EMPTY: Final = -1
"""Fills the last batch of a client whose samples do not divide by the batch."""


def batches(samples: int, batch: int, epochs: int, *, seed: int, client: int, round_: int) -> I64:
    """Positions of a client's samples by step: a fresh permutation an epoch. Shape (steps, batch)."""
    steps = -(-samples // batch)
    made = np.full((epochs, steps * batch), EMPTY, np.int64)
    for epoch in range(epochs):
        made[epoch, :samples] = generator(seed, client, round_, epoch).permutation(samples)
    return made.reshape(epochs * steps, batch)


def generator(seed: int, client: int, *when: int) -> np.random.Generator:
    """The random numbers of one client at one time; `SERVER` stands for the server.

    NumPy's SeedSequence mixes the whole numbers and seeds PCG64. It takes missing numbers as 0: a time that
    ends in 0 is the same as one without that 0, so uses are told apart by a number of their own in `when`.
    """
    return np.random.default_rng([seed, client + 1, *when])
