"""Which batch keeps an efficiency on a number of devices: the isoefficiency question, answered by search.

Efficiency is that of the best plan in terms of the best plan on the fewest devices at the same batch.
Source: Grama, Gupta, Kumar 1993 (Isoefficiency: Measuring the Scalability of Parallel Algorithms).
"""

from dataclasses import dataclass, replace
from typing import Final

from escala.errors import InvalidInput
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.planning.scaling import counts, on
from escala.planning.search import search
from escala.planning.space import SpaceLimits

DOUBLINGS: Final = 8
"""Times the batch is doubled before the answer is that no batch keeps so much."""
HALVINGS: Final = 3
"""Times the last doubling is halved: the batch is exact to an eighth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A batch on the devices of the question: what it keeps, with which plan, against which devices."""

    batch: int
    efficiency: float
    step_s: float
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Isoefficiency:
    """The smallest batch found that keeps `keep` (None: none does), the largest one tried, and today's."""

    keep: float
    devices: int
    base_devices: int
    smallest: Kept | None
    largest: Kept
    today: Kept | None


def batch_keeping(problem: Problem, keep: float, limits: SpaceLimits | None = None) -> Isoefficiency:
    """The smallest batch whose efficiency on the devices of the problem is `keep` or more.

    Batches are multiples of the devices: doubled until one keeps it, then narrowed between the last two.
    """
    devices = problem.cluster.devices
    base = _fewest(problem, limits)
    step, today = devices, _kept(problem, problem.workload.global_batch, base, limits)
    tried = _kept(problem, step, base, limits)
    for _ in range(DOUBLINGS):
        if tried is not None and tried.efficiency >= keep:
            break
        step *= 2
        tried = _kept(problem, step, base, limits) or tried
    if tried is None:
        raise InvalidInput(
            f"no plan fits on {devices:,} devices at any batch; see `escala plan` without --keep"
        )
    smallest = tried if tried.efficiency >= keep else None
    if smallest is not None and step > devices:
        smallest = _narrowed(problem, keep, base, limits, smallest)
    return Isoefficiency(
        keep=keep, devices=devices, base_devices=base, smallest=smallest, largest=tried, today=today
    )


def _narrowed(problem: Problem, keep: float, base: int, limits: SpaceLimits | None, found: Kept) -> Kept:
    """Halve the distance to the doubling before, in whole samples a device."""
    devices, low = problem.cluster.devices, found.batch // 2
    for _ in range(HALVINGS):
        middle = (low + found.batch) // 2 // devices * devices
        if middle <= low:
            break
        tried = _kept(problem, middle, base, limits)
        if tried is not None and tried.efficiency >= keep:
            found = tried
        else:
            low = middle
    return found


def _fewest(problem: Problem, limits: SpaceLimits | None) -> int:
    """The fewest devices on which a batch of the question's fits."""
    for devices in counts(problem, 1, problem.cluster.devices):
        if search(on(problem, devices), limits, top=1).ranking is not None:
            return devices
    raise InvalidInput("no plan fits on these devices or fewer; see `escala plan` without --keep")


def _kept(problem: Problem, batch: int, base: int, limits: SpaceLimits | None) -> Kept | None:
    here = replace(problem, workload=replace(problem.workload, global_batch=batch))
    best, alone = (search(each, limits, top=1).ranking for each in (here, on(here, base)))
    if best is None or alone is None:
        return None
    step_s = float(best.step_s[0])
    kept = float(alone.step_s[0]) * base / (step_s * problem.cluster.devices)
    return Kept(batch=batch, efficiency=kept, step_s=step_s, plan=best.plans[0])
