"""How replicas with local steps agree: the choices of the outer optimizer. Loads no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """The outer optimizer: Nesterov momentum on the mean difference; by default replicas go to their mean.

    `fragments` parts of the weights meet in turn, each once in `local_steps`, so that less is sent at once.
    Rate 0.7 and momentum 0.9 are DiLoCo's, for thousands of steps. In runs of 10 or 36 meetings they end 10
    to 24 % above DDP's loss, and the mean 0 to 7 %: `benchmarks/local_losses.py`.
    Source: Lin 2020 (local SGD) for the mean; Douillard 2023 (DiLoCo), section 3.1; Douillard 2025 for
    fragments.
    """

    learning_rate: float = 1.0
    momentum: float = 0.0
    fragments: int = 1
