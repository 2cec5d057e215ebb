"""How unevenly a router loads the ranks that hold experts: the busiest decides seconds and memory.

Loads of experts are taken as independent and normal around their mean, with a deviation that the router keeps
(its skew) and the noise of sampling tokens. A capacity cuts them off.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from escala.errors import InvalidInput
from escala.model.columns import F64, I64
from escala.model.matmuls import Shape
from escala.model.network import Block, Experts, Network
from escala.model.plan import Plans
from escala.model.problem import Problem

BAD_DRAW: Final = 0.9
"""Share of steps whose busiest rank has at most the load of a bad draw."""
_GRID: Final = np.linspace(-9.0, 9.0, 3601)
_BELOW: Final = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in _GRID])


def on_busiest(
    problem: Problem, plans: Plans, block: Block, shape: Shape, layers: F64 | float = 1.0
) -> Shape:
    """The shape with the load of the busiest expert rank; see `load_ratio`. Without experts as it was."""
    experts = experts_of(block)
    if experts is None:
        return shape
    return replace(shape, load=load_ratio(problem, plans, experts, shape, layers))


def on_bad_draw(
    problem: Problem, plans: Plans, block: Block, shape: Shape, layers: F64 | float = 1.0
) -> Shape:
    """The shape with the load of a bad draw; see `bad_draw_ratio`. Without experts as it was."""
    experts = experts_of(block)
    if experts is None:
        return shape
    return replace(shape, load=bad_draw_ratio(problem, plans, experts, shape, layers))


def with_loads(network: Network, given: float | tuple[float, ...]) -> Network:
    """The network with this deviation of its experts, or with measured loads, one for each expert."""
    counts = {part.experts for stack in network.stacks for b in stack.blocks if (part := experts_of(b))}
    if not counts:
        raise InvalidInput(f"--expert-loads: {network.name} has no experts")
    if isinstance(given, tuple) and counts != {len(given)}:
        known = " and ".join(map(str, sorted(counts)))
        raise InvalidInput(
            f"--expert-loads has {len(given)} numbers; {network.name} has {known} experts a layer"
        )
    changes = {"loads": given} if isinstance(given, tuple) else {"load_deviation": given, "loads": ()}
    stacks = tuple(
        replace(stack, blocks=tuple(_loaded(block, changes) for block in stack.blocks))
        for stack in network.stacks
    )
    return replace(network, stacks=stacks)


def _loaded(block: Block, changes: Mapping[str, Any]) -> Block:
    parts = tuple(replace(part, **changes) if isinstance(part, Experts) else part for part in block.parts)
    return replace(block, parts=parts)


def experts_of(block: Block) -> Experts | None:
    """The experts of a layer, if it has some."""
    return next((part for part in block.parts if isinstance(part, Experts)), None)


def load_ratio(problem: Problem, plans: Plans, part: Experts, shape: Shape, layers: F64 | float = 1.0) -> F64:
    """Tokens of the busiest of EP ranks over the mean: 1 + largest of EP normals * deviation of a rank.

    Buffers padded to a capacity hold it whatever is routed; without padding it is an upper end. A measured
    distribution counts as it is. Over several layers deviations average out: / sqrt(layers). Shape (n,).
    """
    if part.loads:
        ratio = 1.0 + (_measured(part.loads, plans.ep) - 1.0) / np.sqrt(layers)
    else:
        skew = problem.assumptions.expert_skew if part.load_deviation is None else part.load_deviation
        deviation = rank_deviation(plans, part, shape, skew) / np.sqrt(layers)
        ratio = 1.0 + _by_ranks(plans.ep, expected_largest) * deviation
    return _within_capacity(part, ratio)


def bad_draw_ratio(
    problem: Problem, plans: Plans, part: Experts, shape: Shape, layers: F64 | float = 1.0
) -> F64:
    """As `load_ratio`, in nine of ten draws not exceeded, with the skew of the less balanced published runs.

    A skew or a distribution that is given has no other end; then only the draw is worse. Shape (n,).
    """
    if part.loads:
        return load_ratio(problem, plans, part, shape, layers)
    skew = problem.assumptions.expert_skew_high if part.load_deviation is None else part.load_deviation
    deviation = rank_deviation(plans, part, shape, skew) / np.sqrt(layers)
    return _within_capacity(part, 1.0 + _by_ranks(plans.ep, bad_largest) * deviation)


def rank_deviation(plans: Plans, part: Experts, shape: Shape, skew: float) -> F64:
    """Deviation of a rank's load over its mean: sqrt(skew^2 / experts of a rank + 1 / its tokens).

    The largest of EP multinomial counts lies above their mean as that of independent counts of this deviation
    does above theirs. Shape (n,). Source: mean of independent loads; Poisson counts, given their sum.
    """
    experts = part.experts / plans.ep
    return np.sqrt(skew**2 / experts + 1.0 / np.maximum(shape.routed_tokens(part), 1.0))


def dropped_share(part: Experts, skew: float, tokens: float) -> float:
    """Tokens beyond the capacity of their expert, over all: s (f(z) - z (1 - F(z))), z = (capacity - 1) / s.

    s is the deviation of one expert's load, sqrt(skew^2 + experts / (tokens * top_k)); F is the normal
    distribution, f its density. Dropless: 0.
    """
    if part.capacity_factor is None:
        return 0.0
    deviation = math.sqrt(skew**2 + part.experts / (tokens * part.top_k))
    normal, z = NormalDist(), (part.capacity_factor - 1.0) / deviation
    return deviation * (normal.pdf(z) - z * (1.0 - normal.cdf(z)))


@cache
def expected_largest(ranks: int) -> float:
    """Mean of the largest of n standard normals: the integral of (1 - F^n) above 0, less that of F^n below.

    Source: order statistics; 0.564 for two, 1.424 for eight, 2.344 for sixty-four.
    """
    power, step = _BELOW**ranks, _GRID[1] - _GRID[0]
    half = len(_GRID) // 2
    above, below = 1.0 - power[half:], power[: half + 1]
    return float(step * (above.sum() - above[0] / 2 - below.sum() + below[-1] / 2)) if ranks > 1 else 0.0


@cache
def bad_largest(ranks: int) -> float:
    """What the largest of n standard normals does not exceed in nine of ten draws: F(x)^n = 0.9."""
    return NormalDist().inv_cdf(BAD_DRAW ** (1.0 / ranks)) if ranks > 1 else 0.0


def _by_ranks(ranks: I64, of: Callable[[int], float]) -> F64:
    few, where = np.unique(ranks, return_inverse=True)
    return np.array([of(int(each)) for each in few], np.float64)[where]


def _measured(loads: tuple[float, ...], ranks: I64) -> F64:
    """The busiest of EP equal runs of neighbouring experts over their mean."""

    def ratio(count: int) -> float:
        if len(loads) % count:
            return 1.0  # such a plan is rejected: its experts do not divide
        sums = np.reshape(loads, (count, -1)).sum(axis=1)
        return float(sums.max() / sums.mean())

    return _by_ranks(ranks, ratio)


def _within_capacity(part: Experts, ratio: F64) -> F64:
    if part.capacity_factor is None:
        return ratio
    if part.is_padded:
        return np.full_like(ratio, part.capacity_factor)
    return np.minimum(ratio, part.capacity_factor)
