"""What compositions cannot be run, and why: said before a module is changed."""

from collections.abc import Iterator

from torch import nn

from escala.errors import InvalidInput
from escala.model.compositions import composition_reasons
from escala.model.plan import Plan
from escala.parallel.compression import Compression
from escala.parallel.context import context_reasons
from escala.parallel.cutting import stage_reasons
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
        composition_reasons(plan),
        _planned_only(plan),
        _compressions(plan, compression),
        _adapters(module, plan),
    )
    for reasons in found:
        for reason in reasons:
            raise InvalidInput(f"the plan cannot be run: {reason}")


def _planned_only(plan: Plan) -> Iterator[str]:
    if plan.dynamic_cp and plan.cp > 1:
        yield "context ranks share every sequence alike; set dynamic_cp to false"
    if plan.wide_layers:
        yield "all layers are in one format; set wide_layers to 0"


def _compressions(plan: Plan, compression: Compression) -> Iterator[str]:
    is_replicated = plan.zero < 2 and plan.tp * plan.ep * plan.pp == 1 and plan.dp * plan.cp > 1
    if compression is not Compression.NONE and not is_replicated:
        yield f"{compression} gradients are sent by DDP alone: dp above 1, zero 0 or 1, tp, ep and pp 1"


def _adapters(module: nn.Module, plan: Plan) -> Iterator[str]:
    if plan.tp * plan.ep > 1 and is_adapted(module):
        yield "maps with adapters cannot be split over tensor or expert ranks; set tp and ep to 1"
    if plan.pp > 1 and is_adapted(module):
        yield "models with adapters are not cut into stages yet; set pp to 1"
