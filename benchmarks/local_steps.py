"""DDP beside local steps (DiLoCo) on a slow network: `python benchmarks/local_steps.py [--megabits 50]`.

Two hosts with limited cards and a core each are benched, both plans are predicted from that bench alone, then
both train the network of `escala demo` on the same samples of the standard library, with the demo's rate and
warm-up and escala's own outer optimizer, once for each seed. Replicas meet in the last step, so the loss on
held-out text is that of the weights on which they agree; it does not depend on the network, so that losses
over seeds are had sooner from fast cards: `--megabits 10000 --seeds 1,2,3`.

Told are seconds of a step, those of the first and of the last quarter (apart where the machine did something
else meanwhile: then the row says nothing of time), bytes that a host sent, and the loss. Takes seven minutes
a seed at 50 Mbit/s, on a machine that does nothing else, as root, with PyTorch.
"""

import argparse
import json
import os
import statistics
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

TOKENS, BATCH, PATIENCE_S = 128, 16, 1800.0


def problem_of(bench: Path) -> Problem:
    question = Question(
        network=find_network("byte-llama"),
        cluster=read_cluster(bench),
        sequence_tokens=TOKENS,
        global_batch=BATCH,
        precision="fp32",
    )
    return answerable(question)[0]


def job_of(problem: Problem, plan: Plan, folder: Path, steps: int, seed: int) -> Asked:
    rate = Rate(highest=8e-3, warmup_steps=10)
    choices = Choices(steps=steps, seed=seed, device="cpu", rate=rate, is_observed=False)
    document = plan_document(PlanFile(problem=problem, plans=(plan,)), 0)
    job = Job(problem=problem, plan=plan, folder=folder, choices=choices)
    return Asked(job=job, plan_document=document, restarts=0, resumes=False)


def sent_bytes(hosts: Lab) -> int:
    """What the first host has sent so far."""
    line = ["nsenter", "-t", str(hosts.holders[0]), "-n", "ip", "-s", "-j", "link", "show", CARD]
    return int(
        json.loads(subprocess.run(line, capture_output=True, check=True).stdout)[0]["stats64"]["tx"]["bytes"]
    )


def row(hosts: Lab, python: list[str], asked: Asked) -> str:
    """Train on the hosts; what came of it beside the prediction."""
    job = asked.job
    predicted_s = float(estimate(job.problem, Plans.of(job.plan)).step_s[0])
    path, before = save_job(asked), sent_bytes(hosts)
    hosts.run([*python, "train", "--job", str(path)], job.folder.parent, PATIENCE_S)
    sent, done = sent_bytes(hosts) - before, read_lines(job.folder)
    step_s = [each.step_s for each in done]
    quarter = len(step_s) // 4
    early_s, late_s = statistics.fmean(step_s[:quarter]), statistics.fmean(step_s[-quarter:])
    measured_s = read_result(str(job.folder))["run"]["step"]["median_s"]
    one = f"{predicted_s:.3f} s | {measured_s:.3f} s | {early_s:.3f}, {late_s:.3f} s"
    return f"{one} | {sum(step_s):.0f} s | {sent / 1e6:.1f} MB | {done[-1].held_out_loss:.3f}"


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--megabits", type=float, default=50.0)
    options.add_argument("--steps", type=int, default=720, help="a multiple of --local [720: the demo's]")
    options.add_argument("--local", type=int, default=20)
    options.add_argument("--seeds", default="1")
    options.add_argument("--budget", type=float, default=60.0, help="seconds of the bench")
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
    print("| seed | plan | predicted | measured | first, last quarter | all | sent | held-out loss |")
    print("|---|---|---|---|---|---|---|---|")
    with lab(2, bytes_per_s=given.megabits * 1e6 / 8) as hosts:
        bench = ["bench", "--device", "cpu", "--budget", str(given.budget), "-o", "bench.json"]
        hosts.run([*python, *bench], folder, PATIENCE_S)
        problem = problem_of(folder / "bench.json")
        for seed in map(int, given.seeds.split(",")):
            for name, plan in plans.items():
                run = folder / f"seed{seed}-{plan.local_steps}"
                asked = job_of(problem, plan, run, given.steps, seed)
                print(f"| {seed} | {name} | {row(hosts, python, asked)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
