"""Why each family of plans loses to the recommended one: it does not fit, is slower, or cannot be built."""

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.model.cluster import Cluster
from escala.model.columns import F64, I64
from escala.model.estimate import Estimate, deal, estimate, memory_of
from escala.model.explain import LEDGER, TERMS
from escala.model.memory import MemoryKinds
from escala.model.network import Attention, Experts, Mixer
from escala.model.plan import COLUMNS, Plan, Plans, Recompute
from escala.model.problem import Problem
from escala.model.rejects import parts_of
from escala.model.steptime import StepTime
from escala.planning.cells import cells, expand, fill
from escala.planning.frontier import CHUNK_ROWS
from escala.planning.search import Found
from escala.planning.simplicity import FAMILIES, Family, family_masks
from escala.planning.space import MIN_CONTEXT_TOKENS, Group, SpaceLimits, groups, is_context_short
from escala.planning.variants import finished, recomputed
from escala.units import difference, show_bytes, show_seconds

ALONE: Final = "single"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyAnswer:
    """The best plan of a family beside the recommended one.

    `step_ratio` is its step over the recommended step; `short_bytes` what is missing on the device. Both are
    None where they do not apply.
    """

    family: str
    title: str
    plan: Plan | None
    step_s: float | None
    step_ratio: float | None
    short_bytes: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Smallest:
    """Every layout with its smallest micro-batch, fully recomputed, and what each needs on a device."""

    plans: Plans
    needed_bytes: F64


def families(problem: Problem, limits: SpaceLimits, found: Found) -> list[FamilyAnswer]:
    """Every family with its best plan and the reason it loses."""
    chosen = None
    if found.ranking is not None and found.recommended is not None:
        chosen = estimate(problem, Plans.of(found.ranking.plans[found.recommended]))
    lost = {f.name for f in FAMILIES if chosen is None or found.families[f.name] is None}
    ways = smallest(problem, limits) if lost - {ALONE} else None
    best = found.families
    return [_answer(problem, limits, family, best[family.name], chosen, ways) for family in FAMILIES]


def _answer(
    problem: Problem,
    limits: SpaceLimits,
    family: Family,
    best: Plan | None,
    chosen: Estimate | None,
    ways: Smallest | None,
) -> FamilyAnswer:
    if best is not None and chosen is not None:
        is_chosen = bool(family_masks(chosen.plans)[family.name][0])
        return _slower(problem, family, chosen.plans[0] if is_chosen else best, chosen)
    if family.name == ALONE:
        return _single(problem, family)
    assert ways is not None  # one of the families that lost
    least = leanest(problem, ways, family.name)
    if least is None:
        return _blank(family, _unbuildable(problem, limits, family.name))
    return _too_big(family, least, problem)


def _blank(family: Family, why: str) -> FamilyAnswer:
    return FamilyAnswer(
        family=family.name,
        title=family.title,
        plan=None,
        step_s=None,
        step_ratio=None,
        short_bytes=None,
        why=why,
    )


def _slower(problem: Problem, family: Family, best: Plan, chosen: Estimate) -> FamilyAnswer:
    """The term that grows most against the recommended plan names the reason."""
    own = estimate(problem, Plans.of(best))
    ratio = float(own.step_s[0] / chosen.step_s[0])
    grown = {
        f.name: float(getattr(own.time, f.name)[0] - getattr(chosen.time, f.name)[0])
        for f in fields(StepTime)
    }
    worst = max(grown, key=lambda name: grown[name])
    told = difference(float(own.step_s[0]), float(chosen.step_s[0]))
    loss = f": {TERMS[worst][0]} +{show_seconds(grown[worst])}" if "slower" in told else ", but less simple"
    why = "recommended" if best == chosen.plans[0] else told + loss
    return FamilyAnswer(
        family=family.name,
        title=family.title,
        plan=best,
        step_s=float(own.step_s[0]),
        step_ratio=ratio,
        short_bytes=None,
        why=why,
    )


def smallest(problem: Problem, limits: SpaceLimits) -> Smallest:
    """All layouts of a space at their smallest: full recompute, and SP where it may be on."""
    every = [_least_columns(group) for group in groups(problem, limits)]
    names = every[0] if every else COLUMNS
    columns = {name: np.concatenate([np.empty(0, np.int64), *(c[name] for c in every)]) for name in names}
    plain = fill(columns, len(columns["dp"]), limits.plain)
    plans = recomputed(finished(problem, limits, plain), Recompute.FULL)
    chunks = [plans.take(slice(begin, begin + CHUNK_ROWS)) for begin in range(0, len(plans), CHUNK_ROWS)]
    needs = [memory_of(problem, chunk, deal(problem, chunk)).needed_bytes for chunk in chunks]
    return Smallest(plans=plans, needed_bytes=np.concatenate([np.empty(0), *needs]))


def _least_columns(group: Group) -> dict[str, I64]:
    few = replace(group, micro=group.micro[:1], sequence=group.sequence[-1:], orders=group.orders[:1])
    return expand(few, cells(few))[0]


def leanest(problem: Problem, ways: Smallest, family: str) -> Estimate | None:
    """The plan of a family that needs least memory on a device; None where it has no layout."""
    rows = np.flatnonzero(family_masks(ways.plans)[family])
    if not len(rows):
        return None
    row = int(rows[np.argmin(ways.needed_bytes[rows])])
    return estimate(problem, ways.plans.take([row]))


def _too_big(family: Family, least: Estimate, problem: Problem) -> FamilyAnswer:
    """How much is missing at best, and what fills the device."""
    known = problem.assumptions
    limit = problem.accelerator.memory_bytes * known.risky_share
    short = float(least.memory.needed_bytes[0]) - limit
    held = {f.name: float(getattr(least.memory.kinds, f.name)[0]) for f in fields(MemoryKinds)}
    kinds = sorted(held, key=lambda name: -held[name])[:2]
    parts = " and ".join(f"{show_bytes(held[name])} of {LEDGER[name][0]}" for name in kinds)
    verb = "does not fit" if short > 0 else "fits only with full recompute, and is slower than those shown"
    why = f"does not fit by {show_bytes(short)}: {parts}" if short > 0 else verb
    return FamilyAnswer(
        family=family.name,
        title=family.title,
        plan=least.plans[0],
        step_s=None,
        step_ratio=None,
        short_bytes=max(short, 0.0),
        why=why,
    )


def _single(problem: Problem, family: Family) -> FamilyAnswer:
    """One device of the cluster alone, with the same global batch."""
    alone = replace(problem, cluster=resized(problem.cluster, 1))
    least = leanest(alone, smallest(alone, SpaceLimits()), ALONE)
    if least is None:
        return _blank(family, "no plan on one device")
    answer = _too_big(family, least, alone)
    if answer.short_bytes:
        return answer
    return replace(answer, why="fits, but leaves the other devices idle", short_bytes=None)


def resized(cluster: Cluster, devices: int) -> Cluster:
    """The same cluster with another number of devices, all in its first group, as far as its links reach."""
    reach = cluster.links[-1].domain_devices
    if devices > reach:
        raise InvalidInput(
            f"{cluster.name} describes no link beyond {reach:,} devices, so {devices:,} cannot be planned"
        )
    group = cluster.groups[0]
    per_node = min(group.devices_per_node, devices)
    return replace(cluster, groups=(replace(group, devices=devices, devices_per_node=per_node),))


def _lacking(problem: Problem, family: str) -> bool:
    """True when the engine lacks a family; ZeRO-2 is also FSDP without resharding."""
    lacks = set(problem.engine.lacks)
    if family == "zero-2":
        return "zero-2" in lacks and bool({"zero-3", "no-reshard"} & lacks)
    return bool({family, "zero-3" if family == "hsdp" else family} & lacks)


def _unbuildable(problem: Problem, limits: SpaceLimits, family: str) -> str:
    """Why a family has no layout at all."""
    parts = parts_of(problem)
    if family in ("tp", "cp", "pp", "ep") and problem.workload.network.is_traced:
        return "the module was traced: its parts are not known to be split"
    if family == "ep" and not any(isinstance(part, Experts) for part in parts):
        return "the network has no experts"
    if family in ("tp", "cp", "pp") and not any(isinstance(part, (Attention, Mixer)) for part in parts):
        return "the network is no transformer"
    if problem.cluster.devices == 1:
        return "needs more than one device"
    if _lacking(problem, family):
        return f"the engine {problem.engine.name} cannot do it"
    if limits.fixed:
        return "left out by the fields that were fixed"
    if family == "cp" and is_context_short(problem):
        tokens = problem.workload.sequence_tokens
        return f"planned from {MIN_CONTEXT_TOKENS:,} tokens a rank on, and a sequence has {tokens:,}"
    if family == "pp" and len(problem.workload.network.stacks) > 1:
        return "the network has several stacks, not one stream of layers"
    if family == "hsdp" and not problem.workload.global_batch % problem.cluster.devices:
        return "no link domain splits the data-parallel ranks"
    if (
        family in ("ddp", "zero-1", "zero-2", "zero-3", "hsdp")
        and problem.workload.global_batch % problem.cluster.devices
    ):
        batch = problem.workload.global_batch
        return f"{problem.cluster.devices:,} replicas do not divide the global batch {batch:,}"
    return "no degree divides the devices, the global batch and the network's shape"
