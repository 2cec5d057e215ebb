"""How replicas with local steps agree: the choices of the outer optimizer. Loads no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """The outer optimizer: Nesterov momentum on the mean difference, as published for DiLoCo.

    `fragments` parts of the weights meet in turn, each once in `local_steps`, so that less is sent at once.
    Source: Douillard 2023 (DiLoCo), section 3.1: rate 0.7, momentum 0.9; Douillard 2025 for fragments.
    """

    learning_rate: float = 0.7
    momentum: float = 0.9
    fragments: int = 1
