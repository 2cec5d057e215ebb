from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from escala.calibration import Reading, read, read_rows
from escala.calibration.scoring import Prediction
from escala.model.memory import Verdict
from escala.model.plan import Plan

Make = Callable[..., Prediction]


@pytest.fixture(scope="session")
def reading() -> Reading:
    """GPT 1.7B on 32 A100, with data parallelism alone."""
    row = next(row for row in read_rows().rows if row.id == "megatron_001")
    found = read(row)
    assert isinstance(found, Reading)
    return found


@pytest.fixture(scope="session")
def predicted(reading: Reading) -> Make:
    """A prediction by hand: the reading with other fields, some of its row, and what is predicted for it."""

    def make(published_s: float | None, step_s: float, **given: Any) -> Prediction:
        row = replace(
            reading.row, **{name: given.pop(name) for name in ("id", "source", "trust") if name in given}
        )
        answer = {
            name: given.pop(name) for name in ("step_ratio", "memory_bytes", "verdict") if name in given
        }
        held = given.pop("published_bytes", None)
        plan = replace(
            reading.plan, **{name: given.pop(name) for name in ("tp", "pp", "micro_batch") if name in given}
        )
        asked = replace(reading, row=row, plan=plan, step_s=published_s, memory_bytes=held, **given)
        usual = {"step_ratio": 1.2, "memory_bytes": 1.0, "verdict": Verdict.FITS}
        return Prediction(reading=asked, step_s=step_s, need_share=0.5, **(usual | answer))

    return make


@pytest.fixture(scope="session")
def computing(reading: Reading) -> Reading:
    """One device that multiplies matrices and does nothing else."""
    problem, plan = reading.problem, reading.plan
    (group,) = problem.cluster.groups
    chip = replace(group.accelerator, memory_bytes_per_s=1e30)
    cluster = replace(
        problem.cluster, groups=(replace(group, accelerator=chip, devices=1, devices_per_node=1),)
    )
    idle = dict.fromkeys(("dispatch_s", "micro_batch_overhead_s", "step_overhead_s"), 0.0)
    engine = replace(problem.engine, time=replace(problem.engine.time, **idle))
    known = replace(problem.assumptions, gemm_launch_s=0.0, straggler_per_doubling=0.0)
    alone = replace(problem, cluster=cluster, engine=engine, assumptions=known)
    return replace(reading, problem=alone, plan=replace(Plan(), micro_batches=4, precision=plan.precision))
