"""Which samples of a step one data-parallel rank takes. Knows numbers of samples, no data.

The step at cursor c is on samples c to c + global batch of the run, whatever the layout; rank r of R takes
the r-th of R equal pieces of them, and micro-batches follow one another within the piece. The cursor, the
number of samples consumed by all ranks, is all that a run has to keep to go on, also on other ranks.
"""

from dataclasses import dataclass

from escala.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The piece of every global batch that belongs to one of the data-parallel ranks."""

    global_batch: int
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise InvalidInput(f"rank {self.rank} is none of {self.ranks}; ranks count from 0")
        if self.global_batch < 1 or self.global_batch % self.ranks:
            raise InvalidInput(
                f"a global batch of {self.global_batch} cannot be dealt to {self.ranks} data-parallel ranks; "
                f"choose a multiple of {self.ranks}"
            )

    @property
    def samples(self) -> int:
        """Samples of this rank in a step: global batch / ranks."""
        return self.global_batch // self.ranks

    def first(self, cursor: int) -> int:
        """The first sample of this rank in the step at a cursor."""
        return cursor + self.rank * self.samples
