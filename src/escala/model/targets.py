"""What a target costs by the size of the batch: samples, steps, the critical batch. Knows no machine.

A batch is in samples. A target is what some number of samples reaches at some batch; at another batch it
takes other samples. Source: McCandlish et al. 2018 (An Empirical Model of Large-Batch Training), section 2.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.model.columns import F64
from escala.model.workload import Optimizer, OptimizerKind

ROUNDS: Final = 60
"""Of the fixed point of `critical_tokens`: each leaves less than half of the error before."""


class LearningRateRule(StrEnum):
    """How the learning rate follows the batch."""

    LINEAR = "linear"
    SQUARE_ROOT = "square root"


@dataclass(frozen=True, slots=True, kw_only=True)
class Critical:
    """The critical batch in samples with its range: there a target takes twice the fewest samples and steps.

    `high` is None where a measurement knows no upper end. `source` says where it comes from; `is_measured`
    that a run of this job told it.
    """

    batch: float
    low: float
    high: float | None
    source: str
    is_measured: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no range of batches."""
        if not 0.0 <= self.low <= self.batch <= (self.batch if self.high is None else self.high):
            raise InvalidInput(
                f"a critical batch of {self.batch:g} is not inside {self.low:g} to {self.high}"
            )

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the range; without an upper end all samples count the same there."""
        return self.low, np.inf if self.high is None else self.high


def samples_to_target(least_samples: F64 | float, critical: F64 | float, batch: F64) -> F64:
    """Samples to a target: fewest samples * (1 + batch / critical batch).

    Source: McCandlish 2018, equations 2.11 and 2.12.
    """
    return np.asarray(least_samples * (1.0 + batch / critical), np.float64)


def steps_to_target(least_steps: F64 | float, critical: F64 | float, batch: F64) -> F64:
    """Steps to a target: fewest steps * (1 + critical batch / batch).

    The fewest steps are the fewest samples / critical batch. Source: McCandlish 2018, equation 2.11.
    """
    return np.asarray(least_steps * (1.0 + critical / batch), np.float64)


def samples_ratio(critical: float, batch: F64, reference: float) -> F64:
    """Samples over those of a reference batch, same target: (critical + batch) / (critical + reference).

    1 where the critical batch has no end; batch / reference where it is 0, without end where both are.
    """
    if np.isinf(critical):
        return np.ones_like(batch)
    if critical + reference == 0:
        return np.full_like(batch, np.inf)
    return np.asarray((critical + batch) / (critical + reference), np.float64)


def excess_share(critical: float, batch: float) -> float:
    """Share of samples that a target needs more than with the smallest batch: batch / critical batch."""
    return batch / critical if critical > 0 else np.inf


def fitted_critical(batches: F64, samples: F64) -> tuple[float, float]:
    """Critical batch and fewest samples of the line samples = fewest * (1 + batch / critical).

    Least squares of relative errors. Refuses samples that do not rise with the batch.
    """
    rows = np.stack([1.0 / samples, batches / samples], axis=1)
    fewest, slope = np.linalg.lstsq(rows, np.ones(len(batches)))[0]
    if slope <= 0 or fewest <= 0:
        raise InvalidInput("samples to a target that do not rise with the batch tell no critical batch")
    return float(fewest / slope), float(fewest)


def fitted_scale(tokens: F64, critical: F64, exponent: float) -> float:
    """Geometric mean of critical batch / tokens ^ exponent over runs."""
    return float(np.exp(np.mean(np.log(critical) - exponent * np.log(tokens))))


def critical_tokens(scale: float, exponent: float, tokens: float, batch_tokens: float) -> float:
    """Critical batch in tokens: scale * fewest tokens ^ exponent; fewest = tokens / (1 + batch / critical).

    The run takes `tokens` at a batch of so many; the law counts the fewest tokens to the same target.
    """
    critical = float(scale * tokens**exponent)
    for _ in range(ROUNDS):
        critical = float(scale * (tokens / (1.0 + batch_tokens / critical)) ** exponent)
    return critical


def learning_rate_rule(optimizer: Optimizer) -> LearningRateRule:
    """Linear for SGD, the square root for updates that divide by the gradient's size.

    Source: Goyal 2017 (Accurate, Large Minibatch SGD), section 2.1; Malladi 2022 (On the SDEs and Scaling
    Rules for Adaptive Gradient Algorithms), section 5.
    """
    return LearningRateRule.LINEAR if optimizer.kind is OptimizerKind.SGD else LearningRateRule.SQUARE_ROOT


def learning_rate_ratio(rule: LearningRateRule, batch_ratio: float) -> float:
    """Learning rate over that of another batch: the ratio of batches, or its root."""
    return batch_ratio if rule is LearningRateRule.LINEAR else float(np.sqrt(batch_ratio))
