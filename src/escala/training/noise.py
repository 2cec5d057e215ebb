"""The gradient's noise scale: from which batch size on more samples a step stop paying. Knows numbers alone.

A gradient of few samples is longer than that of many, by its noise: E|G_b|^2 = |G|^2 + tr(S) / b. Two batch
sizes in the same step give both unknowns. Source: McCandlish et al. 2018 (An Empirical Model of Large-Batch
Training), appendix A.1.
"""

from dataclasses import dataclass, replace
from typing import Final

from escala.errors import InvalidInput

MEMORY_STEPS: Final = 100
"""Steps over which both parts are averaged before they are divided; their ratio is biased in one step."""


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
class Noise:
    """Both parts averaged over steps, the last ones weighing most."""

    signal: float = 0.0
    trace: float = 0.0
    steps: int = 0

    def after(self, lengths: Lengths) -> "Noise":
        """With one more step: part + (new - part) / min(steps, 100)."""
        steps = self.steps + 1
        share = 1 / min(steps, MEMORY_STEPS)
        return replace(
            self,
            signal=self.signal + share * (squared_signal(lengths) - self.signal),
            trace=self.trace + share * (noise_trace(lengths) - self.trace),
            steps=steps,
        )

    @property
    def batch(self) -> float | None:
        """The simple noise scale, in samples: tr(S) / |G|^2; None while the signal drowns in the noise.

        A run with this batch takes twice the fewest steps and twice the fewest samples (section 2.3).
        """
        return self.trace / self.signal if self.signal > 0 and self.trace > 0 else None
