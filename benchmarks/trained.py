"""Training runs beside their predictions, made before them from one bench file of this machine.

    escala bench --device cpu --ranks 2 -o bench.json
    python benchmarks/trained.py bench.json --folder runs

Each plan is trained by two ranks as `escala train` does. Told are the step (median after warm-up) and the
peak of what is allocated. Takes eight minutes, on a machine that does nothing else meanwhile, with PyTorch.
"""

import argparse
import os
import subprocess
import sys
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

FP32 = precision_code("fp32")
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
        Case(network="byte-llama", tokens=128, name=name, plan=plan, steps=60) for name, plan in PLANS.items()
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


def main() -> None:
    """Predict all, train all, print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("bench", type=Path, help="bench.json of two ranks of this machine")
    options.add_argument("--folder", type=Path, default=Path("runs"))
    given = options.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given.folder.mkdir(parents=True)
    every = cases()
    problems = [problem_of(case, given.bench) for case in every]
    found = [estimate(problem, Plans.of(case.plan)) for case, problem in zip(every, problems, strict=True)]
    errors: list[tuple[float, float]] = []
    print("| network | plan | step predicted | measured | error | memory predicted | measured | error |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for place, (case, problem, predicted) in enumerate(zip(every, problems, found, strict=True)):
        step_s, peak_bytes = trained(case, problem, given.folder.absolute() / f"run{place}")
        before_s, before_bytes = float(predicted.step_s[0]), float(predicted.memory.allocated_bytes[0])
        errors.append((before_s / step_s - 1.0, before_bytes / peak_bytes - 1.0))
        time = f"{before_s * 1e3:.0f} ms | {step_s * 1e3:.0f} ms | {errors[-1][0]:+.1%}"
        memory = f"{before_bytes / 1e6:.0f} MB | {peak_bytes / 1e6:.0f} MB | {errors[-1][1]:+.1%}"
        print(f"| {case.network} | {case.name} | {time} | {memory} |", flush=True)
    sizes = [median(abs(each[kind]) for each in errors) for kind in (0, 1)]
    print(f"\nmedian absolute error: step {sizes[0]:.1%}, memory {sizes[1]:.1%}")


if __name__ == "__main__":
    main()
