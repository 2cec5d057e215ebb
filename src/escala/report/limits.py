"""What a plan file may hold: numbers that a prediction can be made with. Judges ranges, not plans."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from escala.errors import InvalidInput
from escala.model.network import Stack
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Batching, Lengths, Method

MOST: Final = {
    "devices": 1_000_000,
    "devices_per_node": 1_000_000,
    "sequence_tokens": 100_000_000,
    "global_batch": 1_000_000_000,
    "hidden": 1_000_000,
    "experts": 100_000,
}
# Numbers that something is divided by, or of which there is at least one.
POSITIVE: Final = frozenset(MOST) | {
    "domain_devices",
    "bytes_per_s",
    "oversubscription",
    "gather_efficiency",
    "reduce_efficiency",
    "memory_bytes",
    "memory_bytes_per_s",
    "fp32_flop_per_s",
    "tf32_flop_per_s",
    "fp16_flop_per_s",
    "bf16_flop_per_s",
    "fp8_flop_per_s",
    "fp4_flop_per_s",
    "gemm_efficiency",
    "fp8_efficiency",
    "fp32_efficiency",
    "tf32_efficiency",
    "fp4_efficiency",
    "memory_efficiency",
    "flash2_efficiency",
    "flash3_efficiency",
    "node_power_ratio",
    "pue",
    "heads",
    "kv_heads",
    "head_dim",
    "value_head_dim",
    "top_k",
    "kernel",
    "rank",
}
MOST_LAYERS: Final = 10_000
MOST_STAGES: Final = 20_000
MOST_TASKS: Final = 2_000_000


def refuse_impossible(problem: Problem, plans: tuple[Plan, ...], where: str) -> None:
    """Refuse a problem that nothing can be predicted for, with the place of the first such number."""
    cluster, work = problem.cluster, problem.workload
    if not cluster.groups or not cluster.links:
        raise InvalidInput(f"{where}: cluster.{'links' if cluster.groups else 'groups'} is empty; give one")
    for place, value in (*_numbers(cluster, "cluster"), *_numbers(work, "workload")):
        _refuse_number(f"{where}: {place}", place.rpartition(".")[2], value)
    if cluster.links[-1].domain_devices < cluster.devices:
        joined = f"{cluster.links[-1].domain_devices:,} of {cluster.devices:,}"
        raise InvalidInput(f"{where}: the last of cluster.links joins {joined} devices; let it join all")
    if (work.method in (Method.LORA, Method.QLORA)) != (work.lora is not None):
        raise InvalidInput(f"{where}: workload.lora goes with method lora or qlora; change one")
    _refuse_lengths(work.lengths, f"{where}: workload.lengths")
    if (work.method is Method.ADAPTER) != (work.adapter is not None):
        raise InvalidInput(f"{where}: workload.adapter goes with method adapter; change one")
    for stack in work.network.stacks:
        _refuse_stack(stack, f"{where}: workload.network")
    for plan in plans:
        _refuse_plan(plan, f"{where}: plan")


def refuse_long_timeline(plan: Plan) -> None:
    """Refuse to draw more tasks than a viewer opens."""
    tasks = 2 * plan.pp * plan.virtual_stages * plan.micro_batches
    if tasks > MOST_TASKS:
        raise InvalidInput(
            f"a timeline of this plan has {tasks:,} tasks and at most {MOST_TASKS:,} are drawn; "
            "plan with a smaller --global-batch"
        )


def _numbers(record: Any, where: str) -> Iterator[tuple[str, float]]:
    """Every number of a record and its parts that has to be above zero, with its place."""
    for field in fields(record):
        value, place = getattr(record, field.name), f"{where}.{field.name}"
        if is_dataclass(value):
            yield from _numbers(value, place)
        elif isinstance(value, tuple):
            parts = [(number, part) for number, part in enumerate(value) if is_dataclass(part)]
            for number, part in parts:
                yield from _numbers(part, f"{place}[{number}]")
        elif isinstance(value, int | float) and field.name in POSITIVE:
            yield place, value


def _refuse_number(place: str, name: str, value: float) -> None:
    most = MOST.get(name)
    if value <= 0 or (most is not None and value > most):
        allowed = "a number above 0" if most is None else f"a number from 1 to {most:,}"
        raise InvalidInput(f"{place} is {value:g}; give {allowed}")


def _refuse_lengths(lengths: Lengths, where: str) -> None:
    if lengths.batching is not Batching.FULL and not lengths.quantile_tokens:
        raise InvalidInput(
            f"{where} has no quantile_tokens for {lengths.batching} rows; give lengths or 'full'"
        )
    if any(tokens < 1 for tokens in lengths.quantile_tokens):
        raise InvalidInput(f"{where} has a length below one token; give lengths from 1")


def _refuse_stack(stack: Stack, where: str) -> None:
    if not 1 <= stack.layers <= MOST_LAYERS:
        raise InvalidInput(f"{where} has a stack of {stack.layers:,} layers; give 1 to {MOST_LAYERS:,}")
    if max(stack.pattern) >= len(stack.blocks):
        known = f"there are {len(stack.blocks)} blocks"
        raise InvalidInput(f"{where} has block {max(stack.pattern)} in its pattern; {known}, counted from 0")


def _refuse_plan(plan: Plan, where: str) -> None:
    if plan.pp * plan.virtual_stages > MOST_STAGES:
        raise InvalidInput(f"{where}: pp x virtual_stages is above {MOST_STAGES:,}; give fewer stages")
    for name in ("dp", "tp", "cp", "ep", "etp", "shard"):
        if getattr(plan, name) > MOST["devices"]:
            raise InvalidInput(f"{where}: {name} is {getattr(plan, name):,}; give at most 1,000,000")
