"""One truth test: bench a lab, predict from the bench file alone, train, compare. Prediction comes first.

Nothing is tuned on what is measured here: the only input of a prediction is the bench of the same lab.
"""

import json
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from escala import read_cluster
from escala.catalog.families import network_from_config
from escala.model.engine import DistributedTensors
from escala.model.estimate import estimate
from escala.model.plan import Plans
from escala.model.problem import Problem
from escala.model.steptime import StepTime
from escala.planning.defaults import Question, answerable
from netlab.cases import Case, Shape
from netlab.hosts import lab

TESTS: Final = Path(__file__).parents[1]
MESSAGES: Final = (
    "tensor_parallel_s",
    "transfer_s",
    "sharding_s",
    "gradient_sync_s",
)
PATIENCE_S: Final = 290.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One network: hosts, the speed of each card, the time that a packet is under way."""

    hosts: int
    megabits_per_s: float
    delay_s: float = 0.0

    def __str__(self) -> str:
        late = f", {self.delay_s * 1e3:g} ms" if self.delay_s else ""
        return f"{self.hosts} hosts, {self.megabits_per_s:g} Mbit/s{late}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case: seconds of a step as predicted and as measured, and of these the part without messages."""

    setting: Setting
    case: Case
    predicted_s: float
    predicted_alone_s: float
    measured_s: float
    measured_alone_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_s / self.measured_s - 1.0

    def as_keys(self) -> dict[str, Any]:
        """The row as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> "Row":
        """The row that was written as JSON."""
        return cls(**{**keys, "setting": Setting(**keys["setting"]), "case": Case(**keys["case"])})


def median_error(rows: Iterable[Row]) -> float:
    """Median of the absolute errors."""
    return statistics.median(abs(row.error) for row in rows)


def compared(setting: Setting, cases: Sequence[Case], folder: Path, bench_s: float) -> list[Row]:
    """Bench, predictions, runs: all cases of one lab in two launches."""
    (folder / "cases.json").write_text(json.dumps([case.as_keys() for case in cases]))
    python = ["env", f"PYTHONPATH={os.pathsep.join(_paths())}", sys.executable, "-m"]
    options = ["--device", "cpu", "--budget", str(bench_s), "--folder", str(folder), "-o", "bench.json"]
    with lab(setting.hosts, bytes_per_s=setting.megabits_per_s * 1e6 / 8, delay_s=setting.delay_s) as hosts:
        hosts.run([*python, "escala", "bench", *options], folder, PATIENCE_S)
        predictions = {case.name: predicted(folder / "bench.json", case) for case in cases}
        hosts.run([*python, "netlab.worker", "cases.json", "steps.json"], folder, PATIENCE_S)
    steps = json.loads((folder / "steps.json").read_text())
    return [_row(setting, case, predictions[case.name], steps[case.name]) for case in cases]


def predicted(bench: Path, case: Case) -> StepTime:
    """What escala says of a case on the benched hosts."""
    question = Question(
        network=network_from_config(Shape(**case.shape).config(), "decoder", "a test"),
        cluster=read_cluster(bench),
        sequence_tokens=case.shape["tokens"],
        global_batch=case.global_batch,
        precision="fp32",
    )
    problem = under_styles(answerable(question)[0])
    return estimate(problem, Plans.of(case.plan)).time


def under_styles(problem: Problem) -> Problem:
    """The problem under PyTorch's own styles of TP, which a lab runs."""
    messages = replace(problem.messages, distributed_tensors=DistributedTensors.MODULES)
    return replace(problem, engine=replace(problem.engine, messages=((problem.cluster.backend, messages),)))


def _row(setting: Setting, case: Case, time: StepTime, steps: Mapping[str, list[float]]) -> Row:
    step_s = float(time.step_s[0])
    return Row(
        setting=setting,
        case=case,
        predicted_s=step_s,
        predicted_alone_s=step_s - sum(float(getattr(time, name)[0]) for name in MESSAGES),
        measured_s=statistics.median(steps["step_s"]),
        measured_alone_s=statistics.median(steps["alone_s"]),
    )


def _paths() -> list[str]:
    """Where the programs in a lab find escala and this package."""
    import escala

    return [str(Path(escala.__file__).parents[1]), str(TESTS)]
