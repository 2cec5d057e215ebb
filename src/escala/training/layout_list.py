"""Layouts to compare: plans as they are tried, the usual ones, and the passes of a plan one at a time.

Knows plans and verdicts; runs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from escala.model.plan import Plan, Precision, Schedule

LAYOUTS_SCHEMA: Final = "escala/layouts@1"
SAME, DIFFERS, REFUSED, FAILED = "same", "differs", "refused", "failed"
TOLERANCE: Final = 5e-6
"""Largest difference in fp32 of losses, norms (relative) and weights: sums in another order, nothing else."""
REPLICAS: Final = "replicas"
PASSES: Final[dict[str, tuple[str, ...]]] = {
    "stages": ("pp", "schedule", "virtual_stages", "split", "stage_layers"),
    "tensors": ("tp", "sp"),
    "experts": ("ep", "etp", "dispatcher"),
    "context": ("cp", "cp_kind"),
    "recompute": ("recompute", "recompute_layers", "offload_activations"),
    "compile": ("compile",),
    "sharding": ("zero", "shard", "reshard", "offload_params", "offload_optimizer"),
}
"""Passes in the order in which they are applied, and the fields of a plan that each one reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A plan with its name; `passes` are plans on the way to it, by the pass that each one adds."""

    name: str
    plan: Plan
    passes: tuple[tuple[str, Plan], ...]

    @property
    def rows(self) -> int:
        """Samples of a step: as many for each plan on the way."""
        return self.plan.devices * self.plan.micro_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The largest differences from one process in any step: loss, norm (relative), weights at the end."""

    loss: float
    norm: float
    weights: float

    def is_within(self, tolerance: float) -> bool:
        """Whether none of them is above the tolerance; what is no number is."""
        return all(each <= tolerance for each in (self.loss, self.norm, self.weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a layout came to: same, differs, refused or failed, with the reason of the last two.

    `first_pass` is the first pass with which it differs; `tried` the passes up to it and their verdicts.
    """

    name: str
    devices: int
    verdict: str
    difference: Difference | None = None
    reason: str = ""
    first_pass: str | None = None
    tried: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The document of `escala verify --layouts`."""

    schema: str
    escala: str
    module: str
    steps: int
    tolerance: float
    layouts: tuple[Verdict, ...]
    notes: tuple[str, ...]


def layout_of(name: str, plan: Plan) -> Layout:
    """A plan as it is compared: in fp32, with few micro-batches; and the passes on the way to it."""
    most = 2 * plan.pp
    plain = replace(
        plan,
        precision=Precision.FP32,
        fused_loss=False,
        micro_batch=1,
        micro_batches=min(plan.micro_batches, most),
    )
    return Layout(name=name, plan=plain, passes=tuple(_passes(plain)))


def _passes(plan: Plan) -> list[tuple[str, Plan]]:
    """Replicas alone, then one more pass at a time, as far as it changes the plan."""
    alone = Plan(
        dp=plan.devices,
        micro_batches=plan.micro_batches,
        placement=plan.placement,
        precision=plan.precision,
    )
    found, bare = [(REPLICAS, alone)], Plan()
    for name, fields in PASSES.items():
        values = {field: getattr(plan, field) for field in fields}
        if values == {field: getattr(bare, field) for field in fields}:
            continue
        added = replace(found[-1][1], **values)
        ranks = added.tp * added.pp * added.cp
        found.append((name, replace(added, dp=plan.devices // ranks)))
    return found


def usual(devices: int) -> tuple[Layout, ...]:
    """DDP, FSDP, tensors with sequences, stages and context over so many ranks."""
    plans = {
        "DDP": Plan(dp=devices),
        "FSDP": Plan(dp=devices, zero=3, shard=devices, reshard=True),
        "TP + SP": Plan(tp=devices, sp=True),
        "PP (1F1B)": Plan(pp=devices, schedule=Schedule.ONE_F_ONE_B, micro_batches=devices),
        "CP": Plan(cp=devices),
    }
    return tuple(layout_of(name, plan) for name, plan in plans.items())


def missing(layouts: Sequence[Layout], found: Sequence[Verdict]) -> list[Layout]:
    """The layouts without a verdict, in their order."""
    known = {each.name for each in found}
    return [each for each in layouts if each.name not in known]
