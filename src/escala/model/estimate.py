"""The whole prediction for many plans: memory, step time, energy, utilisation, reject bits. Wiring only."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from escala.model.activations import KEPT_COLUMNS, Kept, kept
from escala.model.columns import F64, I64, distinct
from escala.model.energy import Footprint, footprint
from escala.model.flops import hardware_flop, model_flop, reference_peak_flop_per_s, utilisation
from escala.model.interval import interval_ratio, regime, with_host
from escala.model.layers import (
    COMPUTE_COLUMNS,
    GROUP_COLUMNS,
    LAYER_COLUMNS,
    Compute,
    LayerTime,
    compute,
    idle_time,
    layer_time,
)
from escala.model.memory import (
    Memory,
    Verdict,
    memory,
)
from escala.model.plan import Plans
from escala.model.precision import in_sixteen_bit, wide_share
from escala.model.problem import Problem
from escala.model.rejects import Reject, rejects
from escala.model.shards import Shards, shards
from escala.model.slowest import slowest_rank
from escala.model.stages import Slots, kinds, slots
from escala.model.steptime import StepTime, rank_uneven_s, step_time
from escala.model.traffic import Wires, layer_wires
from escala.model.work import Work, work

Columns = TypeVar("Columns", LayerTime, Compute, Kept)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """What is predicted for each plan. Shapes: (n,)."""

    plans: Plans
    time: StepTime
    memory: Memory
    footprint: Footprint
    step_s: F64
    mfu: F64
    hfu: F64
    interval_ratio: F64
    regime: I64
    reject: I64

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.plans)


def estimate(problem: Problem, plans: Plans) -> Estimate:
    """Memory, step time, energy and reject bits of every plan (rows need not be feasible)."""
    dealt = deal(problem, plans)
    space = memory_of(problem, plans, dealt)
    time = step_time(problem, plans, dealt.pairs, dealt.parts, timed_layers(problem, plans))
    step_s, regimes = time.step_s, regime(problem, plans)
    peak, devices = reference_peak_flop_per_s(problem), plans.devices.astype(np.float64)
    too_big = np.where(space.device_verdict == Verdict.DOES_NOT_FIT, int(Reject.MEMORY), 0)
    too_big |= np.where(space.host_verdict == Verdict.DOES_NOT_FIT, int(Reject.HOST_MEMORY), 0)
    return Estimate(
        plans=plans,
        time=time,
        memory=space,
        footprint=footprint(problem, plans, time),
        step_s=step_s,
        mfu=utilisation(model_flop(problem.workload), step_s, devices, peak),
        hfu=utilisation(hardware_flop(problem.workload, plans), step_s, devices, peak),
        interval_ratio=with_host(problem, plans, interval_ratio(problem, regimes)),
        regime=regimes,
        reject=rejects(problem, plans) | too_big,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dealt:
    """What memory depends on beside recompute: slots, parameters and kept activations of each plan."""

    pairs: Slots
    parts: Shards
    keeps: list[Kept]


def deal(problem: Problem, plans: Plans) -> Dealt:
    """Layers, parameters and activations of every plan; the same whatever is recomputed."""
    pairs = slots(problem.workload.network, plans)
    parts = shards(problem.workload, plans, pairs)
    return Dealt(pairs=pairs, parts=parts, keeps=kept_layers(problem, plans))


def memory_of(problem: Problem, plans: Plans, dealt: Dealt) -> Memory:
    """Memory alone."""
    return memory(problem, plans, dealt.pairs, dealt.parts, dealt.keeps)


def time_of(problem: Problem, plans: Plans) -> StepTime:
    """Seconds alone."""
    pairs = slots(problem.workload.network, plans)
    return step_time(
        problem, plans, pairs, shards(problem.workload, plans, pairs), timed_layers(problem, plans)
    )


def uneven_of(problem: Problem, plans: Plans) -> F64:
    """Seconds of a step that replicas wait for the one with the longest samples."""
    dealt = deal(problem, plans)
    rank = slowest_rank(problem, plans, dealt.pairs, dealt.parts, timed_layers(problem, plans))
    return rank_uneven_s(problem, plans, rank)


def work_of(problem: Problem, plans: Plans) -> Work:
    """FLOP of a step and the bytes that one device sends, by kind and by link."""
    dealt = deal(problem, plans)
    rank = slowest_rank(problem, plans, dealt.pairs, dealt.parts, timed_layers(problem, plans))
    return work(problem, plans, rank, layer_wires(problem, plans))


def timed_layers(problem: Problem, plans: Plans) -> list[LayerTime]:
    """Seconds of every kind of layer, once per distinct row of the columns that matter to it."""
    first, group = distinct([getattr(plans, name) for name in LAYER_COLUMNS])
    few = plans.take(first)
    return [_spread(times, group) for times in timed_rows(problem, few, placed_wires(problem, few))]


def placed_wires(problem: Problem, plans: Plans) -> Wires:
    """Links of the groups inside a layer, once per distinct row of the columns that place them."""
    first, placed = distinct([getattr(plans, name) for name in GROUP_COLUMNS])
    return layer_wires(problem, plans.take(first)).take(placed)


def timed_rows(problem: Problem, plans: Plans, wires: Wires) -> list[LayerTime]:
    """Seconds of every kind of layer, of plans that differ, over the given links: a mean layer's."""
    return _with_wide(problem, plans, lambda rows: _timed_rows(problem, rows, wires))


def _timed_rows(problem: Problem, plans: Plans, wires: Wires) -> list[LayerTime]:
    first, shaped = distinct([getattr(plans, name) for name in COMPUTE_COLUMNS])
    few = plans.take(first)
    times = []
    for stack, block in kinds(problem.workload.network):
        if not stack.streams_per_sample:
            times.append(idle_time(len(plans)))
            continue
        own = _spread(compute(problem, few, stack, block), shaped)
        times.append(layer_time(problem, plans, stack, block, own, wires))
    return times


def kept_layers(problem: Problem, plans: Plans) -> list[Kept]:
    """Activations of every kind of layer, computed once per distinct row of the columns that matter."""
    return _with_wide(problem, plans, lambda rows: _kept_rows(problem, rows))


def _kept_rows(problem: Problem, plans: Plans) -> list[Kept]:
    first, group = distinct([getattr(plans, name) for name in KEPT_COLUMNS])
    few = plans.take(first)
    return [_spread(kept(problem, few, *kind), group) for kind in kinds(problem.workload.network)]


def _with_wide(problem: Problem, plans: Plans, of_rows: Callable[[Plans], list[Columns]]) -> list[Columns]:
    """Columns of the mean layer: those of layers left in 16 bit and of scaled ones, by their share."""
    own, share = of_rows(plans), wide_share(plans, problem.workload.network.layers)
    if not share.any():
        return own
    return [_mean(*pair, share) for pair in zip(of_rows(in_sixteen_bit(plans)), own, strict=True)]


def _mean(wide: Columns, own: Columns, share: F64) -> Columns:
    pairs = {f.name: (getattr(wide, f.name), getattr(own, f.name)) for f in fields(own)}
    return type(own)(**{name: share * a + (1.0 - share) * b for name, (a, b) in pairs.items()})


def _spread(columns: Columns, group: I64) -> Columns:
    """The columns of distinct rows dealt to all rows."""
    return type(columns)(**{f.name: getattr(columns, f.name)[group] for f in fields(columns)})
