"""What escala's own engine cannot run of a plan, whatever the module. Knows no module and no device."""

from collections.abc import Iterator
from typing import Final

from escala.model.plan import Offload, OptimizerStep, Plan, Precision, Recompute

RUN: Final = (Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16)
"""Number formats that are run; the others are planned only."""


def composition_reasons(plan: Plan) -> Iterator[str]:
    """Why a plan cannot be run; none where it can."""
    yield from _formats(plan)
    yield from _sharing(plan)
    yield from _offloads(plan)


def _formats(plan: Plan) -> Iterator[str]:
    if plan.precision not in RUN:
        yield f"precision {plan.precision.name.lower()} is planned only; choose fp32, tf32, bf16 or fp16"
    if plan.fused_loss:
        yield "a fused loss is planned only; set fused_loss to false"
    if plan.optimizer_step is not OptimizerStep.WHOLE:
        yield "an optimizer step in tiles or inside backward is planned only; set optimizer_step to whole"


def _sharing(plan: Plan) -> Iterator[str]:
    ranks = plan.dp * plan.cp
    if plan.zero and (ranks % plan.shard or plan.shard % plan.cp):
        yield (
            f"shard={plan.shard} does not divide dp x cp = {ranks}, or is no multiple of cp={plan.cp}; "
            f"choose {ranks}"
        )
    if not plan.zero and plan.shard > 1:
        yield f"shard={plan.shard} without ZeRO shards nothing; set shard to 1, or zero to 1, 2 or 3"
    if plan.zero == 1 and plan.shard > 1 and plan.tp * plan.ep > 1:
        yield "ZeRO-1 deals whole parameters to ranks, which tp and ep have split; use zero=3"
    if plan.zero >= 2 and 1 < plan.shard < ranks and plan.ep > 1:
        yield f"experts are sharded over all their copies, not in groups; set shard to {ranks}, or ep to 1"


def _offloads(plan: Plan) -> Iterator[str]:
    kinds = (plan.offload_params, plan.offload_optimizer, plan.offload_activations)
    if Offload.NVME in kinds:
        yield "offload to NVMe is planned only; choose cpu or none"
    if plan.offload_params is not plan.offload_optimizer:
        yield "FSDP keeps weights and optimizer states in one place; offload both or neither"
    if plan.offload_params is not Offload.NONE and plan.zero < 2:
        yield "weights are offloaded by FSDP alone; use zero=2 or 3"
    if plan.offload_activations is not Offload.NONE and plan.recompute is not Recompute.NONE:
        yield "recompute keeps what it needs out of reach of offload_activations; choose one of both"
    if plan.offload_activations is not Offload.NONE and plan.tp > 1:
        yield "activations split over tensor ranks cannot be offloaded; set offload_activations to none"
