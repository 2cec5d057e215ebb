"""The smallest change after which a job fits: single changes in order of simplicity, then pairs, then more.

A change keeps what is trained (global batch, sequence, method) as long as one that does helps.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from escala.checking.better import recommended
from escala.checking.judging import Judged, judged
from escala.foreign.facts import Value
from escala.model.columns import Bool
from escala.model.estimate import deal, memory_of
from escala.model.host import PLACES
from escala.model.memory import Verdict
from escala.model.plan import Offload, Plan, Plans, Recompute
from escala.model.problem import Problem
from escala.model.rejects import is_unmoved, needs
from escala.model.workload import Lora, Method
from escala.planning.scaling import on
from escala.planning.simplicity import describe
from escala.planning.space import divisors
from escala.units import show_bytes

LAYOUT: Final = ("tp", "pp", "cp", "ep", "zero", "micro_batch")
"""Fields of a plan whose names are those of facts."""
MOST_DEVICES: Final = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """One change: its words, the facts that it sets, and what is predicted for the plan that then runs."""

    title: str
    facts: Mapping[str, Value]
    judged: Judged
    keeps_training: bool = field(default=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Try:
    title: str
    facts: Mapping[str, Value]
    problem: Problem
    plan: Plan
    keeps_training: bool = True


def smallest_change(given: Judged) -> Change | None:
    """The first change after which it fits; without one, the first after which it is at risk only."""
    risky: Change | None = None
    for attempt in _attempts(given.problem, given.plan):
        found = judged(attempt.problem, attempt.plan, given.second_copy)
        change = Change(
            title=attempt.title, facts=attempt.facts, judged=found, keeps_training=attempt.keeps_training
        )
        if found.verdict is Verdict.FITS:
            return change
        if risky is None and found.verdict is Verdict.RISKY and given.verdict is Verdict.DOES_NOT_FIT:
            risky = change
    return risky


def _attempts(problem: Problem, plan: Plan) -> Iterator[_Try]:
    """Changes in order, without those that no engine runs or that cannot fit."""
    singles = list(_singles(problem, plan))
    leanest = _leanest(problem, plan)
    yield from _hopeful(problem, [*singles, *_pairs(singles), leanest])
    yield from _hopeful(problem, list(_other_layout(problem, plan)))
    away = [each for single in (*_unmoved(problem, plan), leanest) for each in _away(single)]
    yield from _hopeful(problem, away)
    for attempt in (*_more_devices(leanest), *_other_training(leanest)):
        yield from _hopeful(attempt.problem, [attempt])


def _unmoved(problem: Problem, plan: Plan) -> list[_Try]:
    """The job as it is, and with each single change."""
    return [_Try(title="", facts={}, problem=problem, plan=plan), *_singles(problem, plan)]


def _away(given: _Try) -> Iterator[_Try]:
    """The same with weights and optimizer states in host memory."""
    plan, knows = given.plan, given.problem.engine.has
    if plan.offload_params is Offload.NONE and plan.zero == 3 and "offload-params" in knows:
        title = "weights and optimizer states in host memory"
        yield replace(
            given,
            title=f"{given.title}, and {title}" if given.title else title,
            facts={**given.facts, "offload_optimizer": "cpu", "offload_params": "cpu"},
            plan=replace(plan, offload_optimizer=Offload.CPU, offload_params=Offload.CPU),
        )


def _pairs(singles: list[_Try]) -> Iterator[_Try]:
    """Two changes that set different facts, each pair once."""
    for first in singles:
        for second in _singles(first.problem, first.plan):
            if not set(first.facts) & set(second.facts):
                title, facts = f"{first.title}, and {second.title}", {**first.facts, **second.facts}
                yield replace(second, title=title, facts=facts)


def _hopeful(problem: Problem, attempts: list[_Try]) -> list[_Try]:
    """Attempts that the engine can run and that may fit, each plan once, where it stands first."""
    first: dict[Plan, _Try] = {}
    for each in attempts:
        first.setdefault(each.plan, each)
    once = list(first.values())
    plans = Plans.of([each.plan for each in once])
    able = ~_lacking(problem, plans)
    need = memory_of(problem, plans, deal(problem, plans)).verdict
    return [once[row] for row in np.flatnonzero(able & (need != Verdict.DOES_NOT_FIT))]


def _lacking(problem: Problem, plans: Plans) -> Bool:
    """Whether a plan needs something that the engine does not know."""
    needed: Mapping[str, Bool] = needs(problem, plans)
    broken = np.zeros(len(plans), np.bool_)
    for ability in problem.lacks:
        broken |= needed[ability]
    return broken | is_unmoved(problem, plans)


def _singles(problem: Problem, plan: Plan) -> Iterator[_Try]:
    """Recompute, a smaller micro-batch, more sharding, offload: each alone, the gentlest first."""
    for title, facts, other in (
        *_recomputed(plan),
        *_smaller(plan),
        *_sharded(plan),
        *_offloaded(problem, plan),
    ):
        yield _Try(title=title, facts=facts, problem=problem, plan=other)


def _recomputed(plan: Plan) -> Iterator[tuple[str, dict[str, Value], Plan]]:
    if plan.recompute is Recompute.NONE:
        other = replace(plan, recompute=Recompute.SELECTIVE)
        yield "selective recompute", {"recompute": "selective"}, other
    if plan.recompute is not Recompute.FULL:
        other = replace(plan, recompute=Recompute.FULL, recompute_layers=0)
        yield "recompute all activations", {"recompute": "full"}, other


def _smaller(plan: Plan) -> Iterator[tuple[str, dict[str, Value], Plan]]:
    """Smaller micro-batches, accumulated as much more often."""
    for micro in sorted(
        (each for each in divisors(plan.micro_batch) if each < plan.micro_batch), reverse=True
    ):
        steps = plan.micro_batches * (plan.micro_batch // micro)
        title = f"micro-batch {plan.micro_batch} → {micro}, accumulation {plan.micro_batches} → {steps}"
        facts: dict[str, Value] = {"micro_batch": micro, "accumulation": steps}
        yield title, facts, replace(plan, micro_batch=micro, micro_batches=steps)


def _sharded(plan: Plan) -> Iterator[tuple[str, dict[str, Value], Plan]]:
    """Higher ZeRO stages over all replicas; FSDP that frees gathered weights."""
    replicas = plan.dp * plan.cp
    if replicas == 1:
        return
    for stage in range(plan.zero + 1, 4):
        other = replace(plan, zero=stage, shard=replicas, reshard=stage == 3)
        name = "ZeRO-3 / FSDP" if stage == 3 else f"ZeRO-{stage}"
        yield f"{name} over {replicas} ranks", {"zero": stage}, other
    if plan.zero == 3 and not plan.reshard:
        yield "free gathered weights after forward", {"reshard": True}, replace(plan, reshard=True)
    if plan.zero == 3 and plan.shard < replicas:
        yield f"shard over all {replicas} replicas", {"shard": replicas}, replace(plan, shard=replicas)


def _offloaded(problem: Problem, plan: Plan) -> Iterator[tuple[str, dict[str, Value], Plan]]:
    """Optimizer states in host memory, where files of the engine can say so of them alone."""
    knows = problem.engine.has
    if "offload-optimizer" not in knows or (plan.zero == 0 and plan.dp > 1):
        return
    if plan.offload_optimizer is Offload.NONE and "offload-apart" in knows:
        other = replace(plan, offload_optimizer=Offload.CPU)
        yield "optimizer states in host memory", {"offload_optimizer": "cpu"}, other


def _leanest(problem: Problem, plan: Plan) -> _Try:
    """All that saves memory on the device, without offload: full recompute, micro-batch 1, most sharding."""
    steps, replicas = plan.micro_batch * plan.micro_batches, plan.dp * plan.cp
    facts: dict[str, Value] = {"recompute": "full", "micro_batch": 1, "accumulation": steps}
    lean = replace(plan, recompute=Recompute.FULL, recompute_layers=0, micro_batch=1, micro_batches=steps)
    if replicas > 1:
        lean = replace(lean, zero=3, shard=replicas, reshard=not (plan.pp > 1))
        facts["zero"] = 3
    title = "full recompute, micro-batch 1" + (" and ZeRO-3 / FSDP over all replicas" if replicas > 1 else "")
    return _Try(title=title, facts=facts, problem=problem, plan=lean)


def _other_layout(problem: Problem, plan: Plan) -> Iterator[_Try]:
    """The plan that the search recommends on these devices, with what it sets."""
    best = recommended(problem, plan.precision)
    if best is None:
        return
    facts: dict[str, Value] = {
        name: value for name in LAYOUT if (value := getattr(best, name)) != getattr(plan, name)
    }
    for place in PLACES:
        if getattr(best, place) is not getattr(plan, place):
            facts[place] = getattr(best, place).name.lower()
    if best.micro_batches != plan.micro_batches and best.pp == 1:
        facts["accumulation"] = best.micro_batches
    if best.recompute is not plan.recompute:
        facts["recompute"] = best.recompute.name.lower().replace("_", "-")
    yield _Try(title=f"another layout, {describe(best)}", facts=facts, problem=problem, plan=best)


def _more_devices(lean: _Try) -> Iterator[_Try]:
    """The leanest plan on twice as many devices, and twice again, with the same global batch."""
    problem, plan = lean.problem, lean.plan
    reach, factor = problem.cluster.links[-1].domain_devices, 2
    while plan.micro_batches % factor == 0 and plan.devices * factor <= min(reach, MOST_DEVICES):
        dp = plan.dp * factor
        wider = replace(plan, dp=dp, micro_batches=plan.micro_batches // factor)
        wider = replace(wider, zero=3, shard=dp * plan.cp, reshard=plan.pp == 1)
        devices = wider.devices
        title = f"{devices:,} devices, with {lean.title}"
        facts = {**lean.facts, "devices": devices, "zero": 3}
        yield _Try(title=title, facts=facts, problem=on(problem, devices), plan=wider)
        factor *= 2


def _other_training(lean: _Try) -> Iterator[_Try]:
    """What changes the training: adapters, then shorter sequences."""
    work = lean.problem.workload
    if not work.is_frozen and work.method is Method.FULL:
        adapted = replace(work, method=Method.LORA, lora=Lora())
        yield replace(
            lean,
            title=f"LoRA adapters, with {lean.title}",
            facts={**lean.facts, "method": "lora"},
            problem=replace(lean.problem, workload=adapted),
            keeps_training=False,
        )
    if work.method is Method.LORA:
        quantized = replace(work, method=Method.QLORA)
        yield replace(
            lean,
            title=f"4-bit weights (QLoRA), with {lean.title}",
            facts={**lean.facts, "method": "qlora"},
            problem=replace(lean.problem, workload=quantized),
            keeps_training=False,
        )
    tokens = work.sequence_tokens
    while tokens >= 1024 and not work.network.is_image:
        tokens //= 2
        yield replace(
            lean,
            title=f"sequences of {tokens:,} tokens, with {lean.title}",
            facts={**lean.facts, "sequence_tokens": tokens},
            problem=replace(lean.problem, workload=replace(work, sequence_tokens=tokens)),
            keeps_training=False,
        )


def numbers(change: Change) -> str:
    """What the change needs, in words."""
    own = change.judged
    text = f"{show_bytes(own.needed_bytes)} of {show_bytes(own.problem.accelerator.memory_bytes)} a device"
    moved = own.plan.offload_optimizer is not Offload.NONE or own.plan.offload_params is not Offload.NONE
    return f"{text}, {show_bytes(own.host.most_bytes)} of host memory at most" if moved else text
