"""Learning rates by step. Pure arithmetic."""

from math import cos, pi

from escala.training.job import Decay, Rate


def learning_rate(rate: Rate, step: int, steps: int) -> float:
    """Linear rise over the warm-up, then a fall to `last_share` of the highest at the last step.

    `step` counts from 0; the first step already learns.
    Source: warm-up and cosine as in GPT-3 (Brown et al. 2020), appendix B.
    """
    if step < rate.warmup_steps:
        return rate.highest * (step + 1) / rate.warmup_steps
    falling = max(steps - 1 - rate.warmup_steps, 1)
    gone = min((step - rate.warmup_steps) / falling, 1.0)
    return rate.highest * (rate.last_share + (1.0 - rate.last_share) * _left(rate.decay, gone))


def _left(decay: Decay, gone: float) -> float:
    """What is left of the fall after a share of it, from 1 to 0."""
    if decay is Decay.CONSTANT:
        return 1.0
    return 1.0 - gone if decay is Decay.LINEAR else 0.5 * (1.0 + cos(pi * gone))
