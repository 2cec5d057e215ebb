"""What the published rows contain, and what they do not: techniques, engines, devices. Counts only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from escala.calibration.reading import Reading
from escala.catalog.accelerators import accelerators
from escala.catalog.engines import engines
from escala.model.plan import Compile, Offload, Precision, Recompute, Schedule
from escala.model.workload import Method

TECHNIQUES: Final[Mapping[str, Callable[[Reading], bool]]] = {
    "one device": lambda r: r.problem.cluster.devices == 1,
    "data parallelism, whole states": lambda r: r.plan.dp > 1 and r.plan.zero == 0,
    "ZeRO-1": lambda r: r.plan.zero == 1,
    "ZeRO-2": lambda r: r.plan.zero == 2,
    "ZeRO-3 or FSDP": lambda r: r.plan.zero >= 3,
    "tensor parallelism": lambda r: r.plan.tp > 1,
    "sequence parallelism": lambda r: r.plan.sp,
    "pipeline": lambda r: r.plan.pp > 1,
    "interleaved pipeline": lambda r: r.plan.schedule is Schedule.INTERLEAVED,
    "zero-bubble pipeline": lambda r: r.plan.schedule is Schedule.ZERO_BUBBLE_V,
    "context parallelism": lambda r: r.plan.cp > 1,
    "expert parallelism": lambda r: r.plan.ep > 1,
    "selective recompute": lambda r: r.plan.recompute is Recompute.SELECTIVE,
    "full recompute": lambda r: r.plan.recompute is Recompute.FULL,
    "compiled": lambda r: r.plan.compile is not Compile.OFF,
    "8-bit products": lambda r: "FP8" in r.plan.precision.name,
    "4-bit products": lambda r: r.plan.precision is Precision.NVFP4,
    "fp16": lambda r: r.plan.precision is Precision.FP16,
    "LoRA": lambda r: r.problem.workload.method is Method.LORA,
    "QLoRA": lambda r: r.problem.workload.method is Method.QLORA,
    "offload of activations": lambda r: r.plan.offload_activations is not Offload.NONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """How many trusted rows use a technique, of how many source groups, with a time and with a memory."""

    name: str
    groups: int
    timed: int
    weighed: int


def contents(readings: Sequence[Reading]) -> tuple[Content, ...]:
    """Trusted rows by technique; a row counts for each that it uses."""
    trusted = [each for each in readings if each.is_trusted]
    return tuple(
        _content(name, [each for each in trusted if uses(each)]) for name, uses in TECHNIQUES.items()
    )


def _content(name: str, rows: Sequence[Reading]) -> Content:
    return Content(
        name=name,
        groups=len({each.group for each in rows}),
        timed=sum(each.step_s is not None for each in rows),
        weighed=sum(each.memory_bytes is not None for each in rows),
    )


def unmeasured_engines(readings: Sequence[Reading]) -> tuple[str, ...]:
    """Engines of the catalog that no trusted row with a step time runs on."""
    return _absent(engines(), [each.problem.engine.name for each in _timed(readings)])


def unmeasured_accelerators(readings: Sequence[Reading]) -> tuple[str, ...]:
    """Devices of the catalog that no trusted row with a step time runs on."""
    return _absent(accelerators(), [each.problem.accelerator.name for each in _timed(readings)])


def _timed(readings: Sequence[Reading]) -> list[Reading]:
    return [each for each in readings if each.is_trusted and each.step_s is not None]


def _absent(every: Sequence[str], present: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in every if name not in set(present))


def assumed_fields(readings: Sequence[Reading]) -> dict[str, int]:
    """How many trusted rows with a step time lack each field, the most frequent first."""
    count: dict[str, int] = {}
    for each in _timed(readings):
        for field in each.imputed:
            count[field] = count.get(field, 0) + 1
    return dict(sorted(count.items(), key=lambda pair: (-pair[1], pair[0])))
