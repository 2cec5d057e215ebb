"""Predicted against measured: one step of small networks on one device, from one bench file of this machine.

    escala bench --device cpu -o bench.json
    python benchmarks/compute.py bench.json                  # six networks whose shapes chance drew
    python benchmarks/compute.py bench.json --set drawn      # six that chance drew before
    python benchmarks/compute.py bench.json --set judged     # six that a second version was judged on
    python benchmarks/compute.py bench.json --set first      # six that a first version was judged on
    python benchmarks/compute.py bench.json --set developed  # those on which the formulas were developed

Forward, backward and AdamW in fp32, eager, without dropout; models of transformers with random weights. All
predictions are made first. Repeats go round over the networks: a busy moment spoils one repeat of each.
Needs PyTorch and transformers; nothing is loaded from a hub.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from compute_cases import SETS, Case

from escala.formats.cluster_toml import read_cluster
from escala.formats.networks import find_network
from escala.model.estimate import Estimate, estimate
from escala.model.plan import Plan, Plans, Precision
from escala.planning.defaults import Question, answerable

LAYERS = ("matmul_s", "attention_s", "elementwise_s", "routing_s", "head_s", "embedding_s", "dispatch_s")
TERMS = (*LAYERS, "optimizer_s", "overhead_s")


def predicted(case: Case, bench: str) -> Estimate:
    """The estimate of one step on the measured machine, read from a config.json as any other."""
    with tempfile.TemporaryDirectory() as folder:
        made = getattr(transformers, case.config)(**case.changes).to_dict()
        file = Path(folder) / "config.json"
        file.write_text(
            json.dumps({**made, "architectures": [case.architecture], **_sized(case)}, default=str)
        )
        network = find_network(str(file))
    question = Question(
        network=network,
        cluster=read_cluster(bench, 1),
        sequence_tokens=None if case.is_image else case.length,
        global_batch=case.batch,
        precision="fp32",
    )
    problem, _ = answerable(question)
    return estimate(problem, Plans.of(Plan(micro_batch=case.batch, precision=Precision.FP32)))


def _sized(case: Case) -> dict[str, object]:
    return {"image_size": case.length} if case.is_image else {}


def prepared(case: Case) -> Callable[[], float]:
    """One training step; its seconds."""
    torch.manual_seed(0)
    changes = {
        name: value for name, value in case.changes.items() if name != "image_size" or "ViT" in case.config
    }
    config = getattr(transformers, case.config)(**changes)
    network = getattr(transformers, case.architecture)(config).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    if case.is_image:
        pixels = torch.randn(case.batch, 3, case.length, case.length)
        given = {"pixel_values": pixels, "labels": torch.randint(100, (case.batch,))}
    else:
        ids = torch.randint(config.vocab_size, (case.batch, case.length))
        given = {"input_ids": ids, "labels": ids}

    def step() -> float:
        began = time.perf_counter()
        network(**given).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began

    return step


def measured(cases: tuple[Case, ...], repeats: int) -> list[list[float]]:
    """Seconds of every repeat of every network, in rounds; two rounds to warm up are left out."""
    steps = [prepared(case) for case in cases]
    rounds = [[step() for step in steps] for _ in range(repeats + 2)][2:]
    return [list(column) for column in zip(*rounds, strict=True)]


def main() -> None:
    """Predict all, measure all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bench", help="bench.json of this machine, of one rank")
    parser.add_argument("--set", choices=SETS, default="drawn-again")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--terms", action="store_true", help="only predict, term by term")
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    cases = SETS[given.set]
    estimates = [predicted(case, given.bench) for case in cases]
    if given.terms:
        for case, each in zip(cases, estimates, strict=True):
            parts = {name: float(getattr(each.time, name)[0]) for name in TERMS}
            words = "  ".join(f"{name[:-2]} {value * 1e3:.1f}" for name, value in parts.items())
            print(f"{case.title:30} {float(each.step_s[0]) * 1e3:7.1f} ms  {words}")
        return
    seconds, errors = measured(cases, given.repeats), []
    print("| network | predicted | median | best | predicted / median |")
    print("|---|---|---|---|---|")
    for case, each, samples in zip(cases, estimates, seconds, strict=True):
        step_s, usual_s = float(each.step_s[0]), statistics.median(samples)
        errors.append(step_s / usual_s - 1.0)
        print(
            f"| {case.title} | {step_s * 1e3:.0f} ms | {usual_s * 1e3:.0f} ms"
            f" | {min(samples) * 1e3:.0f} ms | {errors[-1]:+.1%} |"
        )
    sizes = sorted(abs(each) for each in errors)
    print(f"\nmedian absolute error {statistics.median(sizes):.1%}, worst {sizes[-1]:.1%}")


if __name__ == "__main__":
    main()
