"""One plan in words and numbers: terms of the step, the way from peak to achieved, the memory ledger.

Computes nothing new: values come from an Estimate, formulas and sources from the docstrings of the functions
that produced them.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

from escala.model import (
    efficiency,
    ends,
    layers,
    memory,
    offload,
    pipeline,
    replicas,
    states,
    steptime,
    traffic,
)
from escala.model.estimate import Estimate
from escala.model.flops import model_flop, reference_peak_flop_per_s, work_by_kind
from escala.model.memory import MemoryKinds, Phases
from escala.model.network import Attention, Mixer
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import parts_of
from escala.model.states import keeps_whole_gradients
from escala.model.steptime import StepTime

TERMS: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "matmul_s": ("matrix products", efficiency.matmul_s),
    "attention_s": ("attention", efficiency.core_s),
    "elementwise_s": ("norms, activations, residuals", layers.elementwise_s),
    "routing_s": ("expert routing", layers.routing_s),
    "head_s": ("head and loss", ends.head_s),
    "embedding_s": ("embedding", ends.embedding_s),
    "recompute_s": ("recompute", layers.recompute_s),
    "dispatch_s": ("CPU dispatch not hidden", layers.dispatch_s),
    "tensor_parallel_s": ("tensor parallel, exposed", traffic.tensor_parallel_s),
    "context_parallel_s": ("context parallel, exposed", traffic.context_parallel_s),
    "expert_parallel_s": ("expert parallel, exposed", traffic.expert_parallel_s),
    "transfer_s": ("pipeline transfers", pipeline.transfer_s),
    "bubble_s": ("pipeline bubble", pipeline.bubble_s),
    "sharding_s": ("sharding gathers, exposed", replicas.sharding_s),
    "gradient_sync_s": ("gradient reduction, exposed", replicas.gradient_sync_s),
    "accumulate_s": ("gradient accumulation", steptime.accumulate_s),
    "optimizer_s": ("optimizer step", steptime.optimizer_s),
    "offload_s": ("host link, exposed", offload.offload_s),
    "straggler_s": ("stragglers", steptime.straggler_s),
    "overhead_s": ("framework overhead", steptime.overhead_s),
}
LEDGER: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "weights_bytes": ("weights", states.state_bytes),
    "gathered_bytes": ("gathered weights and reduce units", states.gathered_bytes),
    "gradients_bytes": ("gradients", states.state_bytes),
    "optimizer_bytes": ("optimizer state", states.state_bytes),
    "activations_bytes": ("activations", memory.activation_bytes),
    "logits_bytes": ("logits and loss", memory.logits_bytes),
    "working_bytes": ("layer being recomputed", memory.activation_bytes),
    "buckets_bytes": ("gradient buckets", states.bucket_bytes),
    "step_bytes": ("optimizer temporaries", states.step_bytes),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of the step: seconds, share of the step, the formula in words and its source."""

    name: str
    title: str
    seconds_s: float
    share: float
    formula: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """One step of the waterfall from peak to achieved: share of the peak lost (negative: won), and why."""

    title: str
    share: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One kind of memory: bytes on the fullest rank, how it is shared, the formula."""

    name: str
    title: str
    held_bytes: float
    sharing: str
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One plan explained."""

    terms: tuple[Term, ...]
    waterfall: tuple[Fall, ...]
    ledger: tuple[Entry, ...]
    phase_bytes: dict[str, float]
    peak_flop_per_s: float
    achieved_flop_per_s: float


def explain(problem: Problem, estimate: Estimate, row: int = 0) -> Explanation:
    """Terms, waterfall and ledger of one row of an estimate."""
    plan = estimate.plans[row]
    step_s = float(estimate.step_s[row])
    peak = reference_peak_flop_per_s(problem)
    return Explanation(
        terms=tuple(_term(problem, name, float(getattr(estimate.time, name)[row]), step_s) for name in TERMS),
        waterfall=tuple(_waterfall(problem, estimate, row)),
        ledger=tuple(_entry(problem, plan, name, estimate, row) for name in LEDGER),
        phase_bytes={f.name: float(getattr(estimate.memory.phases, f.name)[row]) for f in fields(Phases)},
        peak_flop_per_s=peak,
        achieved_flop_per_s=model_flop(problem.workload) / step_s / plan.devices,
    )


def _term(problem: Problem, name: str, seconds: float, step_s: float) -> Term:
    title, function = _titled(problem, name)
    formula, source = words(function)
    return Term(
        name=name, title=title, seconds_s=seconds, share=seconds / step_s, formula=formula, source=source
    )


def _titled(problem: Problem, name: str) -> tuple[str, Callable[..., Any]]:
    """Title and formula of a term; where layers scan, attention is (also) that."""
    if name != "attention_s" or not any(isinstance(part, Mixer) for part in parts_of(problem)):
        return TERMS[name]
    attends = any(isinstance(part, Attention) for part in parts_of(problem))
    return "attention and scans" if attends else "scans", efficiency.scan_s


def words(function: Callable[..., Any]) -> tuple[str, str]:
    """First line and source of a formula's docstring."""
    text = inspect.getdoc(function) or ""
    source = text.partition("Source:")[2].replace("\n", " ").strip()
    return text.splitlines()[0].rstrip("."), source


def _waterfall(problem: Problem, estimate: Estimate, row: int) -> list[Fall]:
    """Peak - what each cause takes = achieved, as shares of the step at peak speed."""
    step_s, plan = float(estimate.step_s[row]), estimate.plans[row]
    speed = reference_peak_flop_per_s(problem) * plan.devices
    ideal = {kind: flop / speed for kind, flop in work_by_kind(problem.workload).items()}
    falls = []
    for name in TERMS:
        title, function = _titled(problem, name)
        lost = float(getattr(estimate.time, name)[row]) - ideal.get(name, 0.0)
        if abs(lost) > 1e-4 * step_s:
            label = f"{title} below peak" if name in ideal else title
            falls.append(Fall(title=label, share=lost / step_s, why=words(function)[0]))
    return falls


def _entry(problem: Problem, plan: Plan, name: str, estimate: Estimate, row: int) -> Entry:
    title, function = LEDGER[name]
    return Entry(
        name=name,
        title=title,
        held_bytes=float(getattr(estimate.memory.kinds, name)[row]),
        sharing=sharing(problem, plan, name),
        formula=words(function)[0],
    )


def sharing(problem: Problem, plan: Plan, name: str) -> str:
    """Who holds this kind of memory: sharded over how many ranks, or replicated on all."""
    stage = {"weights_bytes": 3, "gradients_bytes": 2, "optimizer_bytes": 1, "step_bytes": 1}.get(name)
    model = [f"{axis.upper()} {getattr(plan, axis)}" for axis in ("tp", "pp") if getattr(plan, axis) > 1]
    if stage is not None:
        whole = name == "gradients_bytes" and bool(keeps_whole_gradients(problem, Plans.of(plan))[0])
        sharded = plan.zero >= stage and plan.shard > 1 and not whole
        data = f"sharded over {plan.shard}" if sharded else _replicated(plan)
        return ", ".join([data, *(f"split by {axis}" for axis in model)]) or "whole"
    axes = {"activations_bytes": ("tp", "cp"), "logits_bytes": ("tp", "cp"), "gathered_bytes": ("tp", "pp")}
    split = [f"{a.upper()} {getattr(plan, a)}" for a in axes.get(name, ()) if getattr(plan, a) > 1]
    return f"split by {' and '.join(split)}" if split else "own"


def _replicated(plan: Plan) -> str:
    return f"replicated on {plan.dp * plan.cp}" if plan.dp * plan.cp > 1 else "whole"


def field_names() -> tuple[set[str], set[str]]:
    """Names of all terms and kinds that an estimate has; each must be explained here."""
    return {f.name for f in fields(StepTime)}, {f.name for f in fields(MemoryKinds)}
