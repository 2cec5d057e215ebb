"""A trace beside the formula: bytes by kind at the peak, by phase, bytes sent, FLOP. Changes neither.

The formula is that of the plan as it is traced: eager and with the plain loss.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.measurement.tracing.conclude import RankStep, conclude
from escala.measurement.tracing.jobs import BEGIN, FORWARD, STEP, Axis, Collective, Held, Moment
from escala.measurement.tracing.keys import config_keys
from escala.measurement.tracing.process import Told, require_libraries, run, versions
from escala.measurement.tracing.ranks import eager, traced_ranks
from escala.measurement.tracing.software import as_traced
from escala.model.collectives import gather_wire_bytes
from escala.model.estimate import deal, estimate, work_of
from escala.model.memory import Memory, early_gradients, peak_bytes
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.states import unit_bytes

PHASES: Final = ("loss", "backward", "step")
SENT: Final = {Axis.TENSOR: "tensor_bytes", Axis.SHARDING: "sharding_bytes", Axis.REPLICAS: "gradient_bytes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One quantity traced and by formula; `error` is formula / trace - 1, None where nothing was traced."""

    name: str
    traced: float
    formula: float
    error: float | None


def _beside(name: str, traced: float, formula: float) -> Beside:
    return Beside(name=name, traced=traced, formula=formula, error=formula / traced - 1.0 if traced else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A traced plan beside its formula.

    `rank` is the pipeline rank that holds most in the trace, `moment` when, `formula_phase` when by formula.
    `kinds` are those held at the peak of each, `phases` the most in each phase, `sent` what a device sends in
    a step over each group of ranks, `flop` that of all devices. `rank_peaks`
    are those of `ranks`, `predicted_bytes` the peak in use by the plan's own engine.
    """

    rank: int
    moment: Moment
    formula_phase: str
    peak: Beside
    kinds: tuple[Beside, ...]
    phases: tuple[Beside, ...]
    sent: tuple[Beside, ...]
    flop: Beside
    predicted_bytes: float
    ranks: tuple[RankStep, ...]
    rank_peaks: tuple[Beside, ...]
    libraries: dict[str, str]


def compare(problem: Problem, plan: Plan, told: Told) -> Compared:
    """Trace one rank of each kind of a plan and set the formula beside."""
    ranks = traced_ranks(problem, plan)
    require_libraries()
    traced = iter(run([job for rank in ranks for job in rank.jobs], told))
    return beside(
        problem, plan, tuple(conclude(plan, rank, [next(traced) for _ in rank.jobs]) for rank in ranks)
    )


def beside(problem: Problem, plan: Plan, ranks: tuple[RankStep, ...]) -> Compared:
    """Traced steps of the ranks of a plan beside its formula."""
    plans, software = Plans.of(eager(plan)), as_traced(problem, config_keys(problem.workload.network))
    memory = estimate(software, plans).memory
    fullest = max(ranks, key=lambda each: each.peak.total_bytes)
    peak = fullest.peak
    phases = {name: float(getattr(memory.phases, f"{name}_bytes")[0]) for name in PHASES}
    largest = max(PHASES, key=lambda name: phases[name])
    return Compared(
        rank=fullest.rank,
        moment=peak,
        formula_phase=largest,
        peak=_beside("peak", peak.total_bytes, float(memory.allocated_bytes[0])),
        kinds=_kinds(peak, _formula_kinds(software, plans, memory, largest)),
        phases=tuple(_beside(name, _most_bytes(fullest, name), phases[name]) for name in PHASES),
        sent=_sent(problem, plans, plan, ranks),
        flop=_flop(problem, plans, plan, ranks),
        predicted_bytes=float(estimate(problem, Plans.of(plan)).memory.allocated_bytes[0]),
        ranks=ranks,
        rank_peaks=_rank_peaks(software, plans, ranks),
        libraries=versions(),
    )


def phase_of(moment: Moment) -> str:
    """The phase of the formula in which a moment lies; the loss reaches into the begin of backward."""
    if moment.kind == STEP:
        return "step"
    return "loss" if moment.kind == FORWARD or moment.place == BEGIN else "backward"


def _most_bytes(rank: RankStep, phase: str) -> float:
    return max((each.total_bytes for each in rank.moments if phase_of(each) == phase), default=0.0)


def _formula_kinds(problem: Problem, plans: Plans, memory: Memory, phase: str) -> dict[str, float]:
    """What the formula holds in a phase: states by kind, and the rest of the phase at work."""
    kinds, phase_bytes = memory.kinds, float(getattr(memory.phases, f"{phase}_bytes")[0])
    dealt = deal(problem, plans)
    unit = unit_bytes(problem, plans, dealt.pairs, dealt.parts)[dealt.pairs.rank == memory.rank[0]][0]
    at_work = {"loss": 0.0 if problem.engine.memory.units_at_loss else unit, "backward": 0.0}
    gathered = kinds.gathered_bytes[0] - at_work.get(phase, kinds.gathered_bytes[0])
    has_gradients = phase != "loss" or early_gradients(problem, plans)[0]
    held = {
        "weights": float(kinds.weights_bytes[0]),
        "gathered": float(gathered + kinds.buckets_bytes[0]),
        "gradients": float(kinds.gradients_bytes[0]) if has_gradients else 0.0,
        "optimizer": float(kinds.optimizer_bytes[0]),
    }
    return {**held, "activations": phase_bytes - sum(held.values())}


def _kinds(moment: Moment, formula: dict[str, float]) -> tuple[Beside, ...]:
    held = moment.held_bytes
    traced = {
        "weights": held[Held.PARAMETERS],
        "gathered": held[Held.UNSHARDED],
        "gradients": held[Held.GRADIENTS],
        "optimizer": held[Held.OPTIMIZER],
        "activations": held[Held.ACTIVATIONS] + held[Held.TEMPORARY],
    }
    return tuple(_beside(name, traced[name], formula[name]) for name in formula)


def _rank_peaks(problem: Problem, plans: Plans, ranks: tuple[RankStep, ...]) -> tuple[Beside, ...]:
    """The peak of each traced rank."""
    dealt = deal(problem, plans)
    peaks = peak_bytes(problem, plans, dealt.pairs, dealt.parts, dealt.keeps)
    return tuple(
        _beside(f"rank {each.rank}", each.peak.total_bytes, float(peaks[dealt.pairs.rank == each.rank][0]))
        for each in ranks
    )


def _sent(problem: Problem, plans: Plans, plan: Plan, ranks: tuple[RankStep, ...]) -> tuple[Beside, ...]:
    """Bytes that a device sends in a step, by group of ranks; of the rank that sends most over it."""
    formula = work_of(problem, plans).sent
    sizes = group_sizes(plan)
    found = []
    for axis, name in SENT.items():
        traced = max(
            sum(_wire_bytes(each, sizes[axis]) for each in rank.collectives if each.axis == axis)
            for rank in ranks
        )
        found.append(_beside(str(axis), traced, float(getattr(formula, name)[0])))
    return tuple(each for each in found if each.traced or each.formula)


def group_sizes(plan: Plan) -> dict[Axis, int]:
    """Ranks of each group."""
    shard = plan.shard if plan.zero >= 3 else 1
    return {Axis.TENSOR: plan.tp, Axis.SHARDING: shard, Axis.REPLICAS: plan.dp // shard}


def _wire_bytes(each: Collective, ranks: int) -> float:
    passes = 2.0 if each.operation == "all-reduce" else 1.0
    return float(passes * gather_wire_bytes(np.array(each.payload_bytes), np.array(float(ranks))))


def _flop(problem: Problem, plans: Plans, plan: Plan, ranks: tuple[RankStep, ...]) -> Beside:
    """FLOP of a step over all devices."""
    traced = sum(rank.flop * rank.alike for rank in ranks) * plan.dp * plan.tp
    return _beside("flop", traced, float(work_of(problem, plans).hardware_flop[0]))
