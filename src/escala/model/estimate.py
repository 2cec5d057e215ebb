"""The whole prediction for many plans: memory, step time, energy, utilisation, reject bits. Wiring only."""

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from escala.model.activations import Kept, kept
from escala.model.columns import F64, I64, distinct
from escala.model.energy import Footprint, footprint
from escala.model.flops import hardware_flop, model_flop, reference_peak_flop_per_s, utilisation
from escala.model.layers import LAYER_COLUMNS, LayerTime, layer_time, layer_wires
from escala.model.memory import Memory, Verdict, memory
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.rejects import Reject, rejects
from escala.model.shards import shards
from escala.model.stages import kinds, slots
from escala.model.steptime import StepTime, step_time


Columns = TypeVar("Columns", LayerTime, Kept)


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
    reject: I64

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.plans)


def estimate(problem: Problem, plans: Plans) -> Estimate:
    """Memory, step time, energy and reject bits of every plan (rows need not be feasible)."""
    pairs = slots(problem.workload.network, plans)
    parts = shards(problem.workload, plans, pairs)
    times, keeps = _layers(problem, plans)
    space = memory(problem, plans, pairs, parts, keeps)
    time = step_time(problem, plans, pairs, parts, times)
    step_s = time.step_s
    peak, devices = reference_peak_flop_per_s(problem), plans.devices.astype(np.float64)
    too_big = np.where(space.verdict == Verdict.DOES_NOT_FIT, int(Reject.MEMORY), 0)
    return Estimate(
        plans=plans,
        time=time,
        memory=space,
        footprint=footprint(problem, plans, time),
        step_s=step_s,
        mfu=utilisation(model_flop(problem.workload), step_s, devices, peak),
        hfu=utilisation(hardware_flop(problem.workload, plans), step_s, devices, peak),
        reject=rejects(problem, plans) | too_big,
    )


def _layers(problem: Problem, plans: Plans) -> tuple[list[LayerTime], list[Kept]]:
    """Cost of every kind of layer, computed once per distinct row of the columns that matter to a layer."""
    first, group = distinct([getattr(plans, name) for name in LAYER_COLUMNS])
    few = plans.take(first)
    wires = layer_wires(problem, few)
    every = kinds(problem.workload.network)
    times = [layer_time(problem, few, stack, block, wires) for stack, block in every]
    keeps = [kept(problem, few, stack, block) for stack, block in every]
    return [_spread(time, group) for time in times], [_spread(keep, group) for keep in keeps]


def _spread(columns: Columns, group: I64) -> Columns:
    """The columns of distinct rows dealt to all rows."""
    return type(columns)(**{f.name: getattr(columns, f.name)[group] for f in fields(columns)})
