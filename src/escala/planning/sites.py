"""Between sites: whether replicas should train alone for some steps, and below which bandwidth that pays."""

from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import Final

from escala.model.cluster import Link
from escala.model.columns import F64
from escala.model.estimate import time_of
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.planning.search import Found, search
from escala.planning.space import SpaceLimits

TRIED_STEPS: Final = 100
"""Local steps between two continents in INTELLECT-1 (Jaghouar et al. 2024); Douillard 2023 has 500."""
AGREEING_SHARE: Final = 0.05
"""Agreeing that costs at most this share of a step is worth no more local steps: an assumption."""
REACH: Final = 1e4
"""How many times slower or faster links are looked at."""
HALVINGS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Gradients in every step against local steps, over the link between sites.

    `bytes_per_s` is what a whole site sends. `crossover_bytes_per_s` is that below which gradients in every
    step take longer by the tolerance: infinite where they do on every link, 0 where on none. `least_steps`
    keep agreeing at its share.
    """

    link: Link
    bytes_per_s: float
    plain: Plan
    plain_step_s: float
    local: Plan
    local_step_s: float
    crossover_bytes_per_s: float
    least_steps: int


def between(problem: Problem, limits: SpaceLimits, found: Found) -> Between | None:
    """The recommended plan beside the best one with local steps; None where no sites are joined or asked."""
    crossed = [link for link in problem.cluster.crossed_links if link.joins_sites]
    if not crossed or found.ranking is None or found.recommended is None or limits.plain.local_steps > 1:
        return None
    narrowed = replace(limits, fixed={**limits.fixed, "local_steps": (TRIED_STEPS,)})
    other = search(problem, narrowed, objective=found.objective, top=1, tolerance=found.tolerance)
    if other.ranking is None or other.recommended is None:
        return None
    link, inside = crossed[0], problem.cluster.links[-2].domain_devices
    plain, local = found.ranking.plans[found.recommended], other.ranking.plans[other.recommended]
    speed = link.bytes_per_s * inside
    return Between(
        link=link,
        bytes_per_s=speed,
        plain=plain,
        plain_step_s=float(found.ranking.step_s[found.recommended]),
        local=local,
        local_step_s=float(other.ranking.step_s[other.recommended]),
        crossover_bytes_per_s=speed * crossover_ratio(problem, plain, local, found.tolerance),
        least_steps=least_steps(problem, local),
    )


def crossover_ratio(problem: Problem, plain: Plan, local: Plan, tolerance: float) -> float:
    """Bandwidth between sites, in terms of what there is, below which local steps pay: by halving.

    They pay where the plain plan and the local one's layout with gradients in every step both take longer
    than it by more than the tolerance.
    """
    every = Plans.of([plain, replace(local, local_steps=1, local_fragments=1, local_overlap_steps=0), local])
    low, high = 1.0 / REACH, REACH
    if not _pays(problem, every, low, tolerance):
        return 0.0
    if _pays(problem, every, high, tolerance):
        return inf
    for _ in range(HALVINGS):
        middle = sqrt(low * high)
        low, high = (middle, high) if _pays(problem, every, middle, tolerance) else (low, middle)
    return sqrt(low * high)


def least_steps(problem: Problem, local: Plan) -> int:
    """Local steps from which agreeing takes at most its share: agreement / (share * the rest of the step)."""
    time = time_of(problem, Plans.of(local))
    agreement_s = float(time.gradient_sync_s[0]) * local.local_steps
    rest_s = float(time.step_s[0] - time.gradient_sync_s[0])
    return max(ceil(agreement_s / (AGREEING_SHARE * rest_s)), 1)


def _pays(problem: Problem, every: Plans, ratio: float, tolerance: float) -> bool:
    """Whether the last plan is faster than all others by the tolerance."""
    *others, own = step_s(problem, every, ratio)
    return bool(min(others) > (1.0 + tolerance) * own)


def step_s(problem: Problem, plans: Plans, ratio: float = 1.0) -> F64:
    """Seconds of a step with so many times the bandwidth between sites."""
    links = tuple(
        replace(link, bytes_per_s=link.bytes_per_s * ratio) if link.joins_sites else link
        for link in problem.cluster.links
    )
    wider = replace(problem, cluster=replace(problem.cluster, links=links))
    return time_of(wider, plans).step_s
