"""DDP beside local steps (DiLoCo) on a slow network: `python benchmarks/local_steps.py [--megabits 50]`.

Two hosts with limited cards are benched, both plans are predicted from that bench alone, then both train the
same network on the same samples. Told are seconds, bytes that a host sent, and the loss on held-out text.
Takes six minutes, on a machine that does nothing else meanwhile, as root, with PyTorch.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from escala import Plan, Plans, estimate, find_network, read_cluster
from escala.model.problem import Problem
from escala.planning.defaults import Question, answerable, precision_code
from escala.report.planfile import PlanFile, plan_document
from escala.report.train_view import Asked, read_result, save_job
from escala.training.job import Choices, Job, Rate
from escala.training.sinks import read_lines
from netlab.hosts import CARD, Lab, lab, missing
from netlab.truth import TESTS

TOKENS, BATCH, BENCH_S, PATIENCE_S = 128, 16, 60.0, 900.0


def problem_of(bench: Path) -> Problem:
    question = Question(
        network=find_network("byte-llama"),
        cluster=read_cluster(bench),
        sequence_tokens=TOKENS,
        global_batch=BATCH,
        precision="fp32",
    )
    return answerable(question)[0]


def job_of(problem: Problem, plan: Plan, folder: Path, steps: int) -> Asked:
    choices = Choices(steps=steps, device="cpu", rate=Rate(highest=8e-3, warmup_steps=10), is_observed=False)
    document = plan_document(PlanFile(problem=problem, plans=(plan,)), 0)
    job = Job(problem=problem, plan=plan, folder=folder, choices=choices)
    return Asked(job=job, plan_document=document, restarts=0, resumes=False)


def sent_bytes(hosts: Lab) -> int:
    """What the first host has sent so far."""
    line = ["nsenter", "-t", str(hosts.holders[0]), "-n", "ip", "-s", "-j", "link", "show", CARD]
    return int(
        json.loads(subprocess.run(line, capture_output=True, check=True).stdout)[0]["stats64"]["tx"]["bytes"]
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabits", type=float, default=50.0)
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--local", type=int, default=20)
    options.add_argument("--folder", type=Path, default=Path("local-steps"))
    given = options.parse_args()
    why = missing()
    if why:
        print(f"no lab here: {why}", file=sys.stderr)
        return 2
    folder = given.folder.absolute()
    folder.mkdir(parents=True)
    plain = Plan(dp=2, micro_batch=BATCH // 2, precision=precision_code("fp32"))
    plans = {"DDP": plain, f"{given.local} local steps": replace(plain, local_steps=given.local)}
    import escala

    paths = os.pathsep.join((str(Path(escala.__file__).parents[1]), str(TESTS)))
    python = ["env", f"PYTHONPATH={paths}", sys.executable, "-m", "escala"]
    print("| plan | predicted | measured | all steps | sent by a host | held-out loss |")
    print("|---|---|---|---|---|---|")
    with lab(2, bytes_per_s=given.megabits * 1e6 / 8) as hosts:
        bench = ["bench", "--device", "cpu", "--budget", str(BENCH_S), "-o", "bench.json"]
        hosts.run([*python, *bench], folder, PATIENCE_S)
        problem = problem_of(folder / "bench.json")
        for place, (name, plan) in enumerate(plans.items()):
            predicted_s = float(estimate(problem, Plans.of(plan)).step_s[0])
            path = save_job(job_of(problem, plan, folder / f"run{place}", given.steps))
            before = sent_bytes(hosts)
            hosts.run([*python, "train", "--job", str(path)], folder, PATIENCE_S)
            sent, done = sent_bytes(hosts) - before, read_lines(folder / f"run{place}")
            total_s = sum(each.step_s for each in done)
            step_s = read_result(str(folder / f"run{place}"))["run"]["step"]["median_s"]
            loss = done[-1].held_out_loss
            seconds = f"{predicted_s:.3f} s | {step_s:.3f} s | {total_s:.0f} s"
            print(f"| {name} | {seconds} | {sent / 1e6:.1f} MB | {loss:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
