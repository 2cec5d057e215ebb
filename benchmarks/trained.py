"""Training runs beside their predictions, each made before its run from a bench of this machine.

    python benchmarks/trained.py --folder runs

Each plan is trained by two ranks as `escala train` does. Told are the step (median after warm-up) and the
peak of what is allocated. The machine is benched before and after each run: where the two predictions differ
by more than a tenth, it did something else meanwhile, and the row's time is shown but not counted. Takes
fifteen minutes, with PyTorch.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from escala import Plan, Plans, estimate, find_network, read_cluster
from escala.model.plan import Recompute
from escala.model.problem import Problem
from escala.planning.defaults import Question, answerable, precision_code
from escala.report.planfile import PlanFile, plan_document
from escala.report.train_view import Asked, read_result, save_job
from escala.training.job import Choices, Job, Rate

FP32, MOST_DRIFT = precision_code("fp32"), 0.1
DDP = Plan(dp=2, micro_batch=8, precision=FP32)
FSDP = replace(DDP, zero=3, shard=2, reshard=True)
PLANS = {
    "DDP": DDP,
    "DDP, 4 micro-batches": replace(DDP, micro_batch=2, micro_batches=4),
    "ZeRO-1": replace(DDP, zero=1, shard=2),
    "FSDP2": FSDP,
    "FSDP2, weights kept": replace(FSDP, reshard=False),
    "FSDP2, full recompute": replace(FSDP, recompute=Recompute.FULL),
    "TP 2": Plan(tp=2, micro_batch=16, precision=FP32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: network, tokens of a sequence, plan, steps."""

    network: str
    tokens: int
    name: str
    plan: Plan
    steps: int


def cases() -> list[Case]:
    small = [
        Case(network="byte-llama", tokens=128, name=name, plan=plan, steps=200)
        for name, plan in PLANS.items()
    ]
    large = [
        Case(network="gpt2", tokens=128, name=name, plan=replace(PLANS[name], micro_batch=2), steps=16)
        for name in ("DDP", "FSDP2")
    ]
    return [*small, *large]


def problem_of(case: Case, bench: Path) -> Problem:
    batch = case.plan.dp * case.plan.micro_batch * case.plan.micro_batches
    question = Question(
        network=find_network(case.network),
        cluster=read_cluster(bench),
        sequence_tokens=case.tokens,
        global_batch=batch,
        precision="fp32",
    )
    return answerable(question)[0]


def trained(case: Case, problem: Problem, folder: Path) -> tuple[float, float]:
    """Seconds of a step and bytes at the peak, as the run found them."""
    data = "stdlib" if case.network == "byte-llama" else "synthetic"
    choices = Choices(
        steps=case.steps, device="cpu", data=data, rate=Rate(highest=1e-3, warmup_steps=0), is_observed=True
    )
    document = plan_document(PlanFile(problem=problem, plans=(case.plan,)), 0)
    job = Job(problem=problem, plan=case.plan, folder=folder, choices=choices)
    path = save_job(Asked(job=job, plan_document=document, restarts=0, resumes=False))
    rank = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*rank, "-m", "escala", "train", "--job", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{case.network}, {case.name}: {done.stderr[-2000:]}")
    run = read_result(str(folder))["run"]
    return run["step"]["median_s"], run["memory"][0]["peak_bytes"]


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one run."""

    case: Case
    predicted_s: float
    measured_s: float
    after_s: float  # predicted from the bench that followed
    predicted_bytes: float
    peak_bytes: float

    @property
    def is_steady(self) -> bool:
        """Whether the machine stayed as fast as it was."""
        return abs(self.after_s / self.predicted_s - 1.0) <= MOST_DRIFT

    @property
    def time_error(self) -> float:
        return self.predicted_s / self.measured_s - 1.0

    @property
    def memory_error(self) -> float:
        return self.predicted_bytes / self.peak_bytes - 1.0

    def line(self) -> str:
        """One row of the table."""
        drift = f"{self.after_s / self.predicted_s - 1.0:+.0%}" + ("" if self.is_steady else ", not counted")
        time = f"{self.predicted_s * 1e3:.0f} ms | {self.measured_s * 1e3:.0f} ms | {self.time_error:+.1%}"
        memory = f"{self.predicted_bytes / 1e6:.0f} MB | {self.peak_bytes / 1e6:.0f} MB"
        names = f"{self.case.network} | {self.case.name}"
        return f"| {names} | {time} | {drift} | {memory} | {self.memory_error:+.1%} |"


def benched(path: Path, budget_s: float) -> Path:
    """A bench of two ranks of this machine as it is now."""
    ranks = ["--device", "cpu", "--ranks", "2", "--budget", f"{budget_s:g}"]
    line = [sys.executable, "-m", "escala", "bench", *ranks, "-o", str(path)]
    subprocess.run(line, check=True, capture_output=True)
    return path


def predicted(case: Case, bench: Path) -> tuple[Problem, float, float]:
    """The problem, the seconds of a step and the bytes at the peak."""
    problem = problem_of(case, bench)
    found = estimate(problem, Plans.of(case.plan))
    return problem, float(found.step_s[0]), float(found.memory.allocated_bytes[0])


def rows(folder: Path, budget_s: float) -> Iterator[Row]:
    """Bench, predict, train; and again."""
    bench = benched(folder / "bench0.json", budget_s)
    for place, case in enumerate(cases()):
        problem, step_s, allocated_bytes = predicted(case, bench)
        measured_s, peak_bytes = trained(case, problem, folder / f"run{place}")
        bench = benched(folder / f"bench{place + 1}.json", budget_s)
        yield Row(case, step_s, measured_s, predicted(case, bench)[1], allocated_bytes, peak_bytes)


def main() -> None:
    """Print a row after each run, then the medians."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--folder", type=Path, default=Path("runs"))
    options.add_argument("--budget", type=float, default=45.0, help="seconds of each bench")
    given = options.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given.folder.mkdir(parents=True)
    print(
        "| network | plan | step predicted | measured | error | drift | memory predicted | measured | error |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    found = []
    for row in rows(given.folder.absolute(), given.budget):
        found.append(row)
        print(row.line(), flush=True)
    steady = [abs(row.time_error) for row in found if row.is_steady]
    time = f"{median(steady):.1%} over {len(steady)} runs" if steady else "no steady run"
    print(
        f"\nmedian absolute error: step {time}, memory {median(abs(row.memory_error) for row in found):.1%}"
    )


if __name__ == "__main__":
    main()
