"""What a source of samples gives: NumPy arrays of some samples. Knows no file, no order and no torch."""

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

IGNORED: Final = -100
"""A target that is none: cross-entropy passes over it. The same number as `escala.parallel.batch.IGNORED`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """Samples in the order of the run, as columns.

    `inputs` are tokens (n, tokens) int64 or images (n, channels, height, width) float32; `targets` the next
    token of each, IGNORED where there is none, or labels (n,). `documents` numbers the document of each token
    within its sample, `positions` is its place in it; None where each sample is one document.
    """

    inputs: NDArray[Any]
    targets: I64
    documents: NDArray[np.int32] | None = None
    positions: I64 | None = None

    def __len__(self) -> int:
        """Samples."""
        return len(self.inputs)


class Source(Protocol):
    """Anything that can be trained on: so many samples an epoch, and any of them by its number in the run.

    Sample i of a run is the same whoever asks, whenever and beside which others; all else follows from that:
    equal losses under every layout, and exact resume from the number of samples consumed.
    """

    def __len__(self) -> int:
        """Samples of an epoch."""
        ...

    def batch(self, first: int, count: int) -> Samples:
        """Samples first to first + count of the run, epoch after epoch."""
        ...
