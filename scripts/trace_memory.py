"""Traces the plans of docs/how-to/trace-memory.md and prints its table: formula against trace.

    .venv-hf/bin/python scripts/trace_memory.py

Needs PyTorch and transformers; takes some five minutes on one core.
"""

from dataclasses import replace

from escala.catalog import assumptions, cluster_for, engine
from escala.catalog.networks import network
from escala.measurement.tracing.beside import Beside, Compared, compare
from escala.model.plan import Plan, Recompute, Schedule
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.report.trace_view import in_words

FSDP = Plan(dp=8, zero=3, reshard=True, shard=8)
PIPE = Plan(dp=2, zero=3, shard=2, pp=4, micro_batches=8, schedule=Schedule.ONE_F_ONE_B)
ROWS = (
    ("llama-3.2-1b", 4096, "one device, autocast", Plan()),
    ("llama-3.1-8b", 8192, "FSDP2 on 8, ZeRO-3", FSDP),
    ("llama-3.1-8b", 4096, "FSDP2 on 8, ZeRO-2", replace(FSDP, reshard=False)),
    ("llama-3.1-8b", 8192, "HSDP, 4 x 8, 2 micro-batches", replace(FSDP, dp=32, micro_batches=2)),
    ("llama-3.1-8b", 8192, "TP 8 with SP", Plan(tp=8, sp=True)),
    (
        "llama-3.1-70b",
        8192,
        "FSDP2 8 x TP 8 with SP, full recompute",
        replace(FSDP, tp=8, sp=True, recompute=Recompute.FULL),
    ),
    ("llama-3.1-8b", 8192, "FSDP2 on 8, full recompute", replace(FSDP, recompute=Recompute.FULL)),
    ("llama-3.1-8b", 8192, "FSDP2 on 8, selective recompute", replace(FSDP, recompute=Recompute.SELECTIVE)),
    ("llama-3.1-8b", 4096, "FSDP2 2 x PP 4, 1F1B, 8 micro-batches", PIPE),
    ("qwen3-30b-a3b", 4096, "FSDP2 on 16, 128 experts", replace(FSDP, dp=16, shard=16)),
    ("gpt2-xl", 1024, "FSDP2 on 8, micro-batch 4", replace(FSDP, micro_batch=4)),
)


def traced(name: str, tokens: int, plan: Plan) -> Compared:
    """One row."""
    problem = Problem(
        workload=Workload(
            network=network(name),
            sequence_tokens=tokens,
            global_batch=plan.dp * plan.micro_batch * plan.micro_batches,
        ),
        cluster=cluster_for("h100-sxm", plan.devices),
        engine=engine("pytorch"),
        assumptions=assumptions(),
    )
    return compare(problem, plan, lambda what, left_s: None)


def cells(each: Beside) -> str:
    """Trace, formula and error of a pair of bytes."""
    error = "" if each.error is None else f"{100 * each.error:+.1f} %".replace("-", "−")
    return f"{each.traced / 2**30:.2f} | {each.formula / 2**30:.2f} | {error}"


def main() -> None:
    """Print the table; the ranks of a pipeline below, each with its own peak."""
    print("| network, tokens | plan | peak at | traced GiB | formula | error |")
    print("|---|---|---|---|---|---|")
    for name, tokens, words, plan in ROWS:
        found = traced(name, tokens, plan)
        print(
            f"| {name}, {tokens:,} | {words} | {in_words(found.moment)} | {cells(found.peak)} |", flush=True
        )
        for each in (*found.kinds, *found.phases):
            print(f"  {each.name}: {cells(each)}")
        for each in (*found.sent, found.flop):
            print(f"  {each.name}: {each.traced:.4g} {each.formula:.4g} {each.error}")
        for each in found.rank_peaks if len(found.ranks) > 1 else ():
            print(f"  {each.name}: {cells(each)}")


if __name__ == "__main__":
    main()
