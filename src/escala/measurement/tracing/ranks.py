"""The ranks of a plan that are traced, each as a job; and which plans cannot be. Loads no torch.

Ranks with the same layers are alike; the lowest of them, which holds most micro-batches, stands for all.
"""

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from escala.errors import InvalidInput
from escala.measurement.tracing.jobs import BACKWARD, FORWARD, Chunk, Job, Turn
from escala.measurement.tracing.keys import config_keys
from escala.model.engine import SelectiveKind
from escala.model.plan import Compile, Offload, Plan, Plans, Recompute, Schedule
from escala.model.precision import recipe
from escala.model.problem import Problem
from escala.model.stages import layer_kinds, rank_stages, slots, stage_layers
from escala.model.workload import OptimizerKind
from escala.planning.schedules import Kind, order

SOFTWARE: Final = "pytorch"
FEW: Final = (3, 4)
"""Layers of a chunk in the two traces from which a deep one of equal layers follows: first, last, between."""
ENOUGH: Final = 3
"""Micro-batches after which all are like the second: a first, a middle one and a last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRank:
    """One rank to trace and how many are like it; two jobs where its depth is concluded from fewer layers."""

    rank: int
    alike: int
    layers: int
    jobs: tuple[Job, ...]


def eager(plan: Plan) -> Plan:
    """The plan as it is traced: eager, with the plain loss."""
    return replace(plan, compile=Compile.OFF, fused_loss=False)


def refuse_untraceable(problem: Problem, plan: Plan) -> None:
    """Refuse what the trace does not do, with everything that stands in its way."""
    reasons = [reason for reason, is_there in _hindrances(problem, plan).items() if is_there]
    if reasons:
        raise InvalidInput(
            f"this plan cannot be traced: {', '.join(reasons)}; change it with `escala plan --fix`, "
            "or leave --trace out"
        )


def _hindrances(problem: Problem, plan: Plan) -> dict[str, bool]:
    workload, optimizer = problem.workload, problem.workload.optimizer
    offloads = (plan.offload_optimizer, plan.offload_params, plan.offload_activations)
    return {
        f"its engine is {problem.engine.name}, and only {SOFTWARE} is traced": problem.engine.name
        != SOFTWARE,
        f"method {workload.method}": workload.is_frozen,
        "an optimizer other than AdamW with fp32 moments": optimizer.kind is not OptimizerKind.ADAMW
        or optimizer.state_bytes != 4.0,
        f"precision {recipe(plan.precision).name}": recipe(plan.precision).is_scaled,
        "context parallelism": plan.cp > 1,
        "expert parallelism": plan.ep > 1,
        "offload": any(each is not Offload.NONE for each in offloads),
        "ZeRO-2": plan.zero == 2,
        "schedule zero-bubble-v": plan.schedule is Schedule.ZERO_BUBBLE_V,
        "local steps": plan.local_steps > 1,
    }


def traced_ranks(problem: Problem, plan: Plan) -> list[TracedRank]:
    """One rank of each kind that the plan has."""
    refuse_untraceable(problem, plan)
    plans = Plans.of(plan)
    pairs = slots(problem.workload.network, plans)
    bounds = (0, *accumulate(stage_layers(problem.workload.network, plans, 0)))
    keys = dict(config_keys(problem.workload.network))
    ranks = [(int(rank), int(alike)) for rank, alike in zip(pairs.rank, pairs.alike, strict=True)]
    return [_rank(problem, plan, bounds, keys, rank, alike) for rank, alike in ranks]


def _rank(
    problem: Problem, plan: Plan, bounds: tuple[int, ...], keys: dict[str, Any], rank: int, alike: int
) -> TracedRank:
    chunks = _chunks(plan, bounds, rank)
    job = _job(problem, plan, keys, chunks, rank)
    depth = chunks[0].layers
    if _is_even(problem, plan, chunks) and depth > max(FEW):
        jobs = tuple(_cut(job, layers) for layers in FEW)
    else:
        jobs = (job,)
    return TracedRank(rank=rank, alike=alike, layers=depth, jobs=jobs)


def _chunks(plan: Plan, bounds: tuple[int, ...], rank: int) -> tuple[Chunk, ...]:
    last = len(bounds) - 2
    return tuple(
        Chunk(
            first_layer=bounds[stage],
            layers=bounds[stage + 1] - bounds[stage],
            has_embedding=stage == 0,
            has_head=stage == last,
        )
        for stage in rank_stages(rank, plan.pp, plan.virtual_stages, plan.schedule)
    )


def _is_even(problem: Problem, plan: Plan, chunks: tuple[Chunk, ...]) -> bool:
    """Whether all layers of the rank are of one kind, treated alike, and as many in each chunk."""
    kinds = layer_kinds(problem.workload.network)
    held = {
        kinds[place] for each in chunks for place in range(each.first_layer, each.first_layer + each.layers)
    }
    return (
        len(held) == 1
        and len({each.layers for each in chunks}) == 1
        and plan.recompute is not Recompute.FIRST_LAYERS
    )


def _cut(job: Job, layers: int) -> Job:
    return replace(job, chunks=tuple(replace(chunk, layers=layers) for chunk in job.chunks))


def _job(problem: Problem, plan: Plan, keys: dict[str, Any], chunks: tuple[Chunk, ...], rank: int) -> Job:
    is_sharded = plan.zero >= 3 and plan.shard > 1
    shard = plan.shard if is_sharded else 1
    recomputed = {Recompute.FULL: -1, Recompute.FIRST_LAYERS: plan.recompute_layers}
    is_selective = plan.recompute is Recompute.SELECTIVE
    assert not is_selective or problem.engine.memory.selective is SelectiveKind.OPERATORS
    return Job(
        keys=keys,
        chunks=chunks,
        turns=_turns(plan, rank),
        shard=shard,
        replicas=plan.dp // shard,
        tensor=plan.tp,
        is_sharded=is_sharded,
        reshard=plan.reshard,
        shares_optimizer=plan.zero == 1 and plan.dp > 1,
        splits_sequence=plan.sp,
        waits=plan.pp > 1,
        precision=recipe(plan.precision).name,
        recomputed_layers=recomputed.get(plan.recompute, 0),
        is_selective=is_selective,
        micro_batch=plan.micro_batch,
        sequence_tokens=problem.workload.sequence_tokens,
    )


def _turns(plan: Plan, rank: int) -> tuple[Turn, ...]:
    """The tasks of a rank in order, with as few micro-batches as show everything."""
    stages = rank_stages(rank, plan.pp, plan.virtual_stages, plan.schedule)
    tasks = order(plan.schedule, plan.pp, plan.virtual_stages, few_micro_batches(plan, rank), rank)
    return tuple(
        Turn(
            kind=FORWARD if task.kind is Kind.F else BACKWARD,
            chunk=stages.index(task.stage),
            micro_batch=task.micro_batch,
        )
        for task in tasks
    )


def few_micro_batches(plan: Plan, rank: int) -> int:
    """Micro-batches that are traced: all with GPipe, else as many as a rank holds at once, and one more."""
    if plan.schedule is Schedule.GPIPE:
        return plan.micro_batches
    if plan.schedule is Schedule.INTERLEAVED:
        return min(plan.micro_batches, 2 * plan.pp)
    return min(plan.micro_batches, max(plan.pp - rank + 1, ENOUGH))


def stands_for(plan: Plan, traced: int) -> list[int]:
    """How many micro-batches of the step each traced one stands for: the second for all that are left out."""
    return [1 + (place == 1) * (plan.micro_batches - traced) for place in range(traced)]
