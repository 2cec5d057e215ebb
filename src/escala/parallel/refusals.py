"""What compositions cannot be run, and why: said before a module is changed."""

from collections.abc import Iterator

from torch import nn

from escala.errors import InvalidInput
from escala.model.plan import Offload, Plan, Precision, Recompute
from escala.parallel.compression import Compression
from escala.parallel.context import context_reasons
from escala.parallel.cutting import stage_reasons
from escala.parallel.formats import AUTOCAST
from escala.parallel.indivisible import expert_reasons, tensor_reasons
from escala.parallel.lora import is_adapted
from escala.parallel.parts import Parts


def refuse_impossible(
    module: nn.Module, parts: Parts, plan: Plan, compression: Compression = Compression.NONE
) -> None:
    """Raise for a plan that this module cannot be run under."""
    found = (
        stage_reasons(module, parts, plan),
        tensor_reasons(module, parts, plan),
        expert_reasons(module, parts, plan),
        context_reasons(module, parts, plan),
        _formats(plan),
        _sharing(plan),
        _offloads(plan),
        _compressions(plan, compression),
        _adapters(module, plan),
    )
    for reasons in found:
        for reason in reasons:
            raise InvalidInput(f"the plan cannot be run: {reason}")


def _formats(plan: Plan) -> Iterator[str]:
    if plan.precision not in (Precision.FP32, Precision.TF32, *AUTOCAST):
        yield f"precision {plan.precision.name.lower()} is planned only; choose fp32, tf32, bf16 or fp16"
    if plan.fused_loss:
        yield "a fused loss is planned only; set fused_loss to false"


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


def _compressions(plan: Plan, compression: Compression) -> Iterator[str]:
    is_replicated = plan.zero < 2 and plan.tp * plan.ep * plan.pp == 1 and plan.dp * plan.cp > 1
    if compression is not Compression.NONE and not is_replicated:
        yield f"{compression} gradients are sent by DDP alone: dp above 1, zero 0 or 1, tp, ep and pp 1"


def _adapters(module: nn.Module, plan: Plan) -> Iterator[str]:
    if plan.tp * plan.ep > 1 and is_adapted(module):
        yield "maps with adapters cannot be split over tensor or expert ranks; set tp and ep to 1"
    if plan.pp > 1 and is_adapted(module):
        yield "models with adapters are not cut into stages yet; set pp to 1"
