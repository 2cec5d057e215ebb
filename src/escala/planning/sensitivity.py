"""What would change the answer: each hardware number doubled, each degree one step further, on one plan."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from escala.model.cluster import Accelerator, Link
from escala.model.estimate import Estimate, estimate
from escala.model.memory import Verdict
from escala.model.network import Attention, Experts, Mixer
from escala.model.operations import with_twice_the_arithmetic, with_twice_the_memory_speed
from escala.model.plan import Dispatcher, Plan, Plans, Schedule
from escala.model.problem import Problem
from escala.model.rejects import Reject, describe, parts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change and what it does: step and need over today's, or why it is impossible."""

    title: str
    kind: str
    step_ratio: float | None
    need_ratio: float | None
    impossible: str


def sensitivity(problem: Problem, plan: Plan) -> list[Change]:
    """Hardware numbers doubled with the same plan, then one more step of each degree on the same devices."""
    today = estimate(problem, Plans.of(plan))
    hardware = [_changed(title, "hardware", other, plan, today) for title, other in _hardware(problem)]
    return hardware + [
        _changed(title, "plan", problem, other, today) for title, other in _steps(problem, plan)
    ]


def _changed(title: str, kind: str, problem: Problem, plan: Plan, today: Estimate) -> Change:
    then = estimate(problem, Plans.of(plan))
    reasons = describe(int(then.reject[0]) & ~int(Reject.MEMORY))
    if then.memory.verdict[0] == Verdict.DOES_NOT_FIT:
        reasons.append("does not fit")
    return Change(
        title=title,
        kind=kind,
        step_ratio=None if reasons else float(then.step_s[0] / today.step_s[0]),
        need_ratio=float(then.memory.needed_bytes[0] / today.memory.needed_bytes[0]),
        impossible="; ".join(reasons),
    )


def _hardware(problem: Problem) -> Iterator[tuple[str, Problem]]:
    chip = problem.accelerator
    names = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
    peaks = {f"{n}_flop_per_s": getattr(chip, f"{n}_flop_per_s") for n in names}
    faster = {name: 2 * value for name, value in peaks.items() if value is not None}
    operations = with_twice_the_arithmetic(chip.operations)
    yield "2 × peak FLOP/s", _with_chip(problem, replace(chip, **faster, operations=operations))
    speed, operations = 2 * chip.memory_bytes_per_s, with_twice_the_memory_speed(chip.operations)
    yield (
        "2 × memory bandwidth",
        _with_chip(problem, replace(chip, memory_bytes_per_s=speed, operations=operations)),
    )
    for index, link in enumerate(problem.cluster.crossed_links):
        wide = replace(link, bytes_per_s=2 * link.bytes_per_s)
        quick = replace(link, latency_s=link.latency_s / 2)
        yield f"2 × bandwidth of {link.name}", _with_link(problem, index, wide)
        yield f"half the latency of {link.name}", _with_link(problem, index, quick)
    time = problem.engine.time
    quicker = replace(time, dispatch_s=time.dispatch_s / 2)
    yield "half the CPU dispatch time", replace(problem, engine=replace(problem.engine, time=quicker))


def _with_chip(problem: Problem, chip: Accelerator) -> Problem:
    groups = tuple(replace(group, accelerator=chip) for group in problem.cluster.groups)
    return replace(problem, cluster=replace(problem.cluster, groups=groups))


def _with_link(problem: Problem, index: int, link: Link) -> Problem:
    links = tuple(link if i == index else old for i, old in enumerate(problem.cluster.links))
    return replace(problem, cluster=replace(problem.cluster, links=links))


def _steps(problem: Problem, plan: Plan) -> Iterator[tuple[str, Plan]]:
    kinds = {type(part) for part in parts_of(problem)}
    if plan.dp % 2 == 0 and kinds & {Attention, Mixer}:
        for axis in ("tp", "pp", "cp"):
            yield f"2 × {axis}, half dp", _half_dp(problem, plan, axis)
    if Experts in kinds:
        yield "2 × ep", replace(plan, ep=2 * plan.ep)
    if plan.ep > 1:
        for way in Dispatcher:
            if way is not plan.dispatcher:
                yield f"dispatcher {way.name.lower().replace('_', '-')}", replace(plan, dispatcher=way)
    if plan.micro_batches % 2 == 0:
        fewer = replace(plan, micro_batch=2 * plan.micro_batch, micro_batches=plan.micro_batches // 2)
        yield "2 × micro-batch", fewer
    if plan.micro_batch % 2 == 0:
        more = replace(plan, micro_batch=plan.micro_batch // 2, micro_batches=2 * plan.micro_batches)
        yield "half the micro-batch", more


def _half_dp(problem: Problem, plan: Plan, axis: str) -> Plan:
    """Twice one degree at half the data parallelism: twice the micro-batches, the shard group follows."""
    degree = {axis: 2 * getattr(plan, axis)}
    wider = replace(plan, dp=plan.dp // 2, micro_batches=2 * plan.micro_batches, **degree)
    if axis == "pp" and plan.pp == 1:
        kept = plan.reshard and "reshard-with-pp" not in problem.lacks
        wider = replace(wider, schedule=Schedule.ONE_F_ONE_B, reshard=kept)
    replicas = wider.dp * wider.cp
    return replace(wider, shard=min(plan.shard, replicas) if plan.zero else 1)
