"""How far a predicted step time can be off: one factor for each regime, decided from the question alone.

The factors are 80 % quantiles of the error on sources left out of the fit, by regime, narrower for a
calibrated engine; a user's own runs of the stack and regime count beside them. Regimes are listed by how
special they are, and the last that a plan belongs to counts: the order is part of the rule, whatever the
factors are after a fit.
"""

import math
from enum import IntEnum
from typing import Final

import numpy as np

from escala.model.columns import F64, I64, Bool
from escala.model.network import Attention, Convolution, Experts, Mixer, Part
from escala.model.own import OwnSpread
from escala.model.plan import Offload, Plans
from escala.model.problem import Problem
from escala.model.rejects import parts_of
from escala.model.traced import is_convolutional
from escala.model.traces import Traced


class Regime(IntEnum):
    """What limits the accuracy of a prediction, the more special the later; see interval_..._ratio."""

    PIPELINE = 0
    SHARDED = 1
    SMALL = 2
    REPLICATED = 3
    CONVOLUTION = 4
    LONG = 5
    SLOW = 6
    ADAPTED = 7
    EXPERTS = 8


WORDS: Final = {
    Regime.PIPELINE: "dense network in a pipeline",
    Regime.SHARDED: "dense network, sharded data parallel",
    Regime.SMALL: "small network, bound by CPU dispatch",
    Regime.REPLICATED: "dense network, data or tensor parallel only",
    Regime.CONVOLUTION: "convolutional network",
    Regime.LONG: "long context",
    Regime.SLOW: "slow network, consumer or old devices",
    Regime.ADAPTED: "fine-tuning of adapters",
    Regime.EXPERTS: "mixture of experts",
}
# Where the step-time study drew its lines between regimes (2026-11-30).
LONG_TOKENS: Final = 32768
SLOW_BYTES_PER_S: Final = 6e9
SMALL_HIDDEN: Final = 2048
SMALL_TOKENS_HIDDEN: Final = 2e6
OLD: Final = ("pascal", "volta", "turing")
# What the width from published runs counts beside own ones: as many runs as make an engine calibrated.
PUBLISHED_VOTES: Final = 5.0
LEAST_RATIO: Final = 1.03  # repeats of one configuration differ by as much


def regime(problem: Problem, plans: Plans) -> I64:
    """The last, most special regime that each plan belongs to. Shape (n,)."""
    base = np.where(plans.zero >= 3, Regime.SHARDED, Regime.REPLICATED)
    last = np.where(plans.pp > 1, Regime.PIPELINE, base).astype(np.int64)
    for kind, belongs in _special(problem, plans).items():
        last = np.where(belongs, np.maximum(last, int(kind)), last)
    return last


def knows_pair(problem: Problem) -> bool:
    """Whether published runs of the engine on this architecture took part in the fit."""
    return problem.engine.is_calibrated and problem.accelerator.architecture in problem.engine.calibrated_on


def interval_ratio(problem: Problem, regimes: I64) -> F64:
    """Factor of the 80 % interval of step time: value / ratio to value * ratio. Shape (n,).

    By regime, from published runs and from own ones where the problem is calibrated with those.
    """
    ratios = published_ratios(problem)
    if problem.own is not None:
        ratios = _with_own(problem, ratios)
    return np.asarray(ratios[regimes], np.float64)


def published_ratios(problem: Problem) -> F64:
    """Factor by regime: one for engines that published runs calibrated on the architecture, one for others.

    A device that no run calibrated, or none of the engine, and a traced module add a factor of their own:
    logarithms add as squares.
    Source: left-out errors, see docs/accuracy.
    """
    known, is_known = problem.assumptions, knows_pair(problem)
    names = (f"interval_{kind.name.lower()}{'_known' if is_known else ''}_ratio" for kind in Regime)
    ratio = np.array([getattr(known, name) for name in names], np.float64)
    is_usual = problem.accelerator.is_calibrated and not problem.workload.network.is_traced
    if is_usual and (is_known or not problem.engine.is_calibrated):
        return ratio
    return np.asarray(np.exp(np.hypot(np.log(ratio), np.log(known.interval_chip_ratio))), np.float64)


def with_host(problem: Problem, plans: Plans, ratios: F64) -> F64:
    """The factor with that of states in host memory or on disks: logarithms add as squares."""
    away = (plans.offload_params != Offload.NONE) | (plans.offload_optimizer != Offload.NONE)
    if not away.any():
        return ratios
    own = np.log(problem.assumptions.interval_host_ratio)
    return np.where(away, np.exp(np.hypot(np.log(ratios), own)), ratios)


def combined_ratio(published: float, configurations: int, error: float) -> float:
    """Mean of squared logarithms, published with 5 votes and own with one each, back as a factor.

    exp(root of (5 ln(published)^2 + configurations * error^2) / (5 + configurations)), never below the noise
    of repeats.
    """
    votes = PUBLISHED_VOTES + configurations
    squared = (PUBLISHED_VOTES * math.log(published) ** 2 + configurations * error**2) / votes
    return max(math.exp(math.sqrt(squared)), LEAST_RATIO)


def own_spread(problem: Problem, kind: Regime) -> OwnSpread | None:
    """What own runs of this engine, device and regime say of the error, where there are any."""
    stack = (problem.engine.name, problem.accelerator.name, kind.name.lower())
    every = problem.own.runs.spread if problem.own is not None else ()
    return next((each for each in every if (each.engine, each.accelerator, each.regime) == stack), None)


def _with_own(problem: Problem, ratios: F64) -> F64:
    found = ratios.copy()
    for kind in Regime:
        spread = own_spread(problem, kind)
        if spread is not None:
            found[kind] = combined_ratio(float(ratios[kind]), spread.configurations, spread.error)
    return found


def _special(problem: Problem, plans: Plans) -> dict[Regime, Bool]:
    parts, every = {_kind(part) for part in parts_of(problem)}, np.ones(len(plans), np.bool_)
    stack, tokens = problem.workload.network.main, problem.workload.sequence_tokens
    per_rank = plans.micro_batch * float(stack.tokens or tokens) * stack.hidden / (plans.tp * plans.cp)
    small = (per_rank < SMALL_TOKENS_HIDDEN) | (stack.hidden <= SMALL_HIDDEN)
    return {
        Regime.SMALL: small & (Attention in parts or Mixer in parts),
        Regime.CONVOLUTION: every & (Convolution in parts),
        Regime.LONG: every & (tokens >= LONG_TOKENS),
        Regime.SLOW: every & _is_slow(problem),
        Regime.ADAPTED: every & problem.workload.is_frozen,
        Regime.EXPERTS: every & (Experts in parts),
    }


def _kind(part: Part) -> type[Part]:
    """The kind of a part; traced ones count as convolutions or as attention, whichever they are nearer to."""
    if isinstance(part, Traced):
        return Convolution if is_convolutional(part) else Attention
    return type(part)


def _is_slow(problem: Problem) -> bool:
    """An old or consumer device, or a crossed link of at most 6 GB/s for each device."""
    crossed = problem.cluster.crossed_links
    narrow = any(link.bytes_per_s / link.oversubscription <= SLOW_BYTES_PER_S for link in crossed)
    return narrow or problem.accelerator.is_consumer or problem.accelerator.architecture in OLD
