"""What the model predicts for readings: seconds, bytes in the counter of the source, verdict. No statistics.

Readings that ask the same question of the same machine are one batch, whatever their layout and batch.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from escala.calibration.reading import RECOMPUTE, Reading
from escala.calibration.software import Counter
from escala.calibration.widths import widened
from escala.model.estimate import deal, memory_of, timed_layers
from escala.model.interval import interval_ratio, regime
from escala.model.memory import Memory, Verdict
from escala.model.plan import Plan, Plans, Recompute
from escala.model.problem import Problem
from escala.model.steptime import step_time

COUNTED: Final = {
    Counter.ALLOCATED: "allocated_bytes",
    Counter.RESERVED: "reserved_bytes",
    Counter.DEVICE: "device_bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One reading answered: seconds with their 80 % factor, bytes in the reading's counter, verdict.

    `step_ratio` makes the interval step_s / ratio to step_s * ratio, wider where fields of the row are
    assumed; `need_share` is the predicted need over the capacity of the device. It and the verdict are those
    of full recompute where the source prints none: not known is not "none".
    """

    reading: Reading
    step_s: float
    step_ratio: float
    memory_bytes: float
    need_share: float
    verdict: Verdict


def predict(readings: Sequence[Reading]) -> tuple[Prediction, ...]:
    """Every reading predicted, in the order given."""
    found: dict[int, Prediction] = {}
    for where in batches(readings):
        found.update(zip(where, _predicted([readings[i] for i in where]), strict=True))
    return tuple(found[i] for i in range(len(readings)))


def batches(readings: Sequence[Reading]) -> Iterable[list[int]]:
    """Positions of readings whose plans can be priced together.

    The same question but for its global batch, which plans carry themselves.
    """
    alike: defaultdict[Problem, list[int]] = defaultdict(list)
    for i, reading in enumerate(readings):
        alike[question(reading.problem)].append(i)
    return alike.values()


def question(problem: Problem) -> Problem:
    """What plans that can be priced together have in common: all but the global batch, which they carry."""
    return replace(problem, workload=replace(problem.workload, global_batch=1))


def _predicted(readings: Sequence[Reading]) -> list[Prediction]:
    problem, plans = readings[0].problem, Plans.of([reading.plan for reading in readings])
    dealt, ratios = deal(problem, plans), interval_ratio(problem, regime(problem, plans))
    seconds = step_time(problem, plans, dealt.pairs, dealt.parts, timed_layers(problem, plans)).step_s
    space, least = memory_of(problem, plans, dealt), _least_memory(problem, readings)
    shares = least.needed_bytes / problem.accelerator.memory_bytes
    return [
        Prediction(
            reading=reading,
            step_s=float(seconds[i]),
            step_ratio=widened(float(ratios[i]), reading.imputed),
            memory_bytes=float(getattr(space, COUNTED[reading.counter])[i]),
            need_share=float(shares[i]),
            verdict=Verdict(int(least.device_verdict[i])),
        )
        for i, reading in enumerate(readings)
    ]


def _least_memory(problem: Problem, readings: Sequence[Reading]) -> Memory:
    """Memory of the lighter reading of each row, which decides whether the run can have fit."""
    plans = Plans.of([_lighter(reading) for reading in readings])
    return memory_of(problem, plans, deal(problem, plans))


def _lighter(reading: Reading) -> Plan:
    if RECOMPUTE not in reading.imputed:
        return reading.plan
    return replace(reading.plan, recompute=Recompute.FULL, recompute_layers=0)
