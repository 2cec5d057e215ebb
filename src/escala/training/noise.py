"""The gradient's noise scale: from which batch size on more samples a step stop paying. Knows numbers alone.

A gradient of few samples is longer than that of many, by its noise: E|G_b|^2 = |G|^2 + tr(S) / b. Two batch
sizes in the same step give both unknowns. Source: McCandlish et al. 2018 (An Empirical Model of Large-Batch
Training), appendix A.1.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

from escala.errors import InvalidInput

MEMORY_STEPS: Final = 100
"""Steps over which both parts are averaged before they are divided; their ratio is biased in one step."""
LEAST_STEPS: Final = 20
"""Of fewer steps no estimate is told: how far they scatter is not known well enough for an interval."""
QUANTILE: Final = 1.2815515655446004
"""Of the normal distribution for a two-sided interval of 80 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Squared norms of the gradient of one step over few and over many samples."""

    few: float
    many: float
    few_squared_norm: float
    many_squared_norm: float

    def __post_init__(self) -> None:
        """Refuse what tells nothing apart."""
        if not 0 < self.few < self.many:
            raise InvalidInput(
                f"a gradient of {self.few:g} samples cannot be compared with one of {self.many:g}"
            )


def squared_signal(lengths: Lengths) -> float:
    """|G|^2: (many * |G_many|^2 - few * |G_few|^2) / (many - few); unbiased, so it can be negative."""
    known = lengths.many * lengths.many_squared_norm - lengths.few * lengths.few_squared_norm
    return known / (lengths.many - lengths.few)


def noise_trace(lengths: Lengths) -> float:
    """tr(S): (|G_few|^2 - |G_many|^2) / (1 / few - 1 / many), the variance of one sample's gradient."""
    longer = lengths.few_squared_norm - lengths.many_squared_norm
    return longer / (1 / lengths.few - 1 / lengths.many)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A noise scale in samples with its 80 % interval, of so many steps; `high` None: no bound is known."""

    batch: float
    low: float
    high: float | None
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Both parts averaged over steps, the last ones weighing most, and how they scatter.

    `products` are the means of signal^2, signal * trace and trace^2; `squared_weights` is the sum of the
    squared weights of the steps, 1 / steps while all weigh the same.
    """

    signal: float = 0.0
    trace: float = 0.0
    steps: int = 0
    products: tuple[float, float, float] = (0.0, 0.0, 0.0)
    squared_weights: float = 1.0

    def after(self, lengths: Lengths) -> "Noise":
        """With one more step: part + (new - part) / min(steps, 100)."""
        steps = self.steps + 1
        share = 1 / min(steps, MEMORY_STEPS)
        signal, trace = squared_signal(lengths), noise_trace(lengths)
        squares = (signal * signal, signal * trace, trace * trace)
        first, mixed, last = (
            old + share * (new - old) for old, new in zip(self.products, squares, strict=True)
        )
        return replace(
            self,
            signal=self.signal + share * (signal - self.signal),
            trace=self.trace + share * (trace - self.trace),
            steps=steps,
            products=(first, mixed, last),
            squared_weights=(1 - share) ** 2 * self.squared_weights + share**2,
        )

    @property
    def batch(self) -> float | None:
        """The simple noise scale, in samples: tr(S) / |G|^2; None while the signal drowns in the noise.

        A run with this batch takes twice the fewest steps and twice the fewest samples (section 2.3).
        """
        return self.trace / self.signal if self.signal > 0 and self.trace > 0 else None

    @property
    def estimate(self) -> Estimate | None:
        """The noise scale with its interval; None for fewer than 20 steps or while the signal drowns."""
        if self.batch is None or self.steps < LEAST_STEPS:
            return None
        low, high = self._interval()
        return Estimate(batch=self.batch, low=low, high=high, steps=self.steps)

    def _interval(self) -> tuple[float, float | None]:
        """All batches b with (trace - b signal)^2 <= q^2 var(trace - b signal), the means being normal.

        Without an upper end where the signal itself may be 0.
        Source: Fieller 1954 (Some problems in interval estimation), section 2.
        """
        known = 1 / self.squared_weights  # steps of equal weight that would scatter as much
        quantile = QUANTILE + (QUANTILE**3 + QUANTILE) / (4 * (known - 1))  # Student's, to first order
        means = (self.signal**2, self.signal * self.trace, self.trace**2)
        squared, mixed, constant = (
            mean - quantile**2 * (product - mean) / (known - 1)
            for mean, product in zip(means, self.products, strict=True)
        )
        root = sqrt(max(mixed**2 - squared * constant, 0.0))
        low = (mixed - root) / squared if squared else 0.0
        if squared > 0:
            return max(low, 0.0), (mixed + root) / squared
        return (low if 0 < low <= self.trace / self.signal else 0.0), None
